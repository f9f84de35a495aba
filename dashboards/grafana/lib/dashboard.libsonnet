// A whole dashboard of panels: variables, links to the others, findings as annotations, and the place of each panel.
local promql = import 'promql.libsonnet';

local datasource = { type: 'prometheus', uid: '${datasource}' };
local tag = 'weft';

local choice(name, label, query, description) = {
  type: 'query',
  name: name,
  label: label,
  description: description,
  datasource: datasource,
  query: { query: query, refId: 'variable-' + name },
  regex: '',
  refresh: 2,  // when the time range changes, too
  sort: 7,
  hide: 0,
  skipUrlSync: false,
  options: [],
};
local several(all) = {
  multi: true,
  includeAll: true,
  allValue: all,
  current: { text: ['All'], value: ['$__all'] },
};
local one = { multi: false, includeAll: false, current: {} };

local columns = 24;

// rows: [{title (optional: a line above), height, panels}]; panels without a width share a row evenly.
local placed(rows) =
  local heading(title) = { type: 'row', title: title, collapsed: false, panels: [], width:: columns, height:: 1 };
  local line(row) = [
    { width:: std.floor(columns / std.length(row.panels)) } + panel + { height:: row.height }
    for panel in row.panels
  ];
  local flat = std.flattenArrays([
    (if std.objectHas(row, 'title') then [[heading(row.title)]] else []) + [line(row)]
    for row in rows
  ]);
  local below = function(lines) std.foldl(function(sum, line) sum + line[0].height, lines, 0);
  local lines = std.mapWithIndex(function(i, line)
    std.mapWithIndex(function(j, panel) panel {
      gridPos: {
        x: std.foldl(function(sum, left) sum + left.width, line[0:j], 0),
        y: below(flat[0:i]),
        w: panel.width,
        h: panel.height,
      },
    }, line), flat);
  std.mapWithIndex(function(i, panel) panel { id: i + 1 }, std.flattenArrays(lines));

{
  choice:: {
    fabric: choice(
      'fabric',
      'Fabric',
      'label_values(weft_build_info, fabric)',
      'The label that targets get where one Prometheus watches several fabrics.'
    ) + several('.*'),
    job: choice(
      'job',
      'Job',
      'label_values(weft_build_info{fabric=~"$fabric"}, job)',
      'Jobs that scrape weftd and weft-aggregator.'
    ) + several('.+'),
    aggregator: choice(
      'aggregator',
      'Aggregator',
      'label_values(%s, instance)' % promql.any('weft_link_known'),
      'The aggregator of the fabric, as Prometheus reaches it; links to its console go there.'
    ) + one,
    place(name, label): choice(
      name,
      label,
      'query_result(%s)' % promql.places,
      'Leaves or hosts.'
    ) + several('.+') { regex: '/place="([^"]+)"/' },
    host: choice(
      'host',
      'Host',
      'label_values(%s, host)' % promql.any('weft_agent_info'),
      'Hosts that run weftd.'
    ) + several('.+'),
    instance: choice(
      'instance',
      'Instance',
      'label_values(%s, instance)' % promql.any('weft_agent_info', ['host=~"$host"']),
      'weftd of the chosen hosts, as Prometheus reaches it.'
    ) + several('.+'),
  },

  // What a link into another dashboard takes along, and how it names that dashboard.
  to(uid, variables):: '/d/%s?%s' % [uid, std.join('&', [
    '${__url_time_range}',
    '${datasource:queryparam}',
    '${fabric:queryparam}',
    '${job:queryparam}',
    '${aggregator:queryparam}',
  ] + ['var-%s=%s' % [name, variables[name]] for name in std.objectFields(variables)])],
  uid:: { fabric: 'weft-fabric', paths: 'weft-paths', agents: 'weft-agents' },

  new(uid, title, description, variables, console, rows):: {
    uid: uid,
    id: null,
    title: title,
    description: description,
    tags: [tag],
    schemaVersion: 39,
    version: 1,
    editable: false,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-1h', to: 'now' },
    timepicker: {},
    timezone: '',
    fiscalYearStartMonth: 0,
    weekStart: '',
    annotations: { list: [{
      name: 'Findings',
      datasource: datasource,
      enable: true,
      hide: false,
      iconColor: 'red',
      target: {
        refId: 'findings',
        expr: promql.aggregator('weft_finding_active', ['severity!="info"']),
        interval: '15s',
      },
      titleFormat: '{{kind}}',
      textFormat: '{{subject}}',
      tagKeys: 'severity',
      useValueForTime: false,
    }] },
    links: [
      {
        type: 'dashboards',
        title: '',
        tags: [tag],
        asDropdown: false,
        includeVars: true,
        keepTime: true,
        targetBlank: false,
        icon: 'external link',
        tooltip: '',
        url: '',
      },
      {
        type: 'link',
        title: 'Console',
        tags: [],
        asDropdown: false,
        includeVars: false,
        keepTime: false,
        targetBlank: true,
        icon: 'external link',
        tooltip: "The aggregator's own page, live",
        url: 'http://${aggregator}/' + console,
      },
    ],
    templating: { list: [{
      type: 'datasource',
      name: 'datasource',
      label: 'Data source',
      query: 'prometheus',
      regex: '',
      refresh: 1,
      hide: 0,
      multi: false,
      includeAll: false,
      current: {},
      options: [],
      skipUrlSync: false,
    }] + variables },
    panels: placed(rows),
  },
}
