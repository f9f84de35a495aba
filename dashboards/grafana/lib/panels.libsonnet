// Panels, without their place and number, which dashboard.libsonnet gives them.
local datasource = { type: 'prometheus', uid: '${datasource}' };
local letters = std.stringChars('ABCDEFGHIJ');

local panel(type, title, description, targets) = {
  type: type,
  title: title,
  description: description,
  datasource: datasource,
  targets: [targets[i] { refId: letters[i] } for i in std.range(0, std.length(targets) - 1)],
  fieldConfig: { defaults: {}, overrides: [] },
  options: {},
};
local defaults(more) = { fieldConfig+: { defaults+: more } };
local legend = { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] };

{
  // A query over the time range, and one of now.
  over_time(expr, legend=''):: {
    datasource: datasource,
    editorMode: 'code',
    expr: expr,
    legendFormat: if legend == '' then '__auto' else legend,
    range: true,
    instant: false,
    format: 'time_series',
  },
  now(expr, legend=''):: $.over_time(expr, legend) { range: false, instant: true },
  rows(expr):: $.now(expr) { format: 'table' },

  // [[value, colour], ...], the first without a bound below.
  steps(first, more=[]):: {
    mode: 'absolute',
    steps: [{ color: first, value: null }] + [{ color: step[1], value: step[0] } for step in more],
  },
  // {value: [text, colour]}
  words(of):: [{
    type: 'value',
    options: { [value]: { text: of[value][0], color: of[value][1] } for value in std.objectFields(of) },
  }],
  link(title, url):: { title: title, url: url, targetBlank: false },
  override(field, properties, matcher='byName'):: {
    matcher: { id: matcher, options: field },
    properties: [{ id: id, value: properties[id] } for id in std.objectFields(properties)],
  },

  time_series(title, description, unit, targets, thresholds=null, links=[], fill=0)::
    panel('timeseries', title, description, targets) + defaults({
      unit: unit,
      min: 0,
      links: links,
      color: { mode: 'palette-classic' },
      custom: { fillOpacity: fill, lineWidth: 1, showPoints: 'never', spanNulls: false } +
              (if thresholds != null then { thresholdsStyle: { mode: 'dashed' } } else {}),
    } + (if thresholds != null then { thresholds: thresholds } else {})) {
      options: { legend: legend, tooltip: { mode: 'multi', sort: 'desc' } },
    },

  stat(title, description, unit, targets, thresholds, decimals=null, mappings=[])::
    panel('stat', title, description, targets) + defaults({
      unit: unit,
      thresholds: thresholds,
      mappings: mappings,
      color: { mode: 'thresholds' },
      noValue: 'unknown',
    } + (if decimals != null then { decimals: decimals } else {})) {
      options: {
        reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
        colorMode: 'value',
        graphMode: 'none',
        justifyMode: 'auto',
        orientation: 'auto',
        textMode: if std.length(targets) > 1 then 'value_and_name' else 'auto',
        wideLayout: true,
      },
    },

  table(title, description, targets, transformations=[], overrides=[], sort=[])::
    panel('table', title, description, targets) + defaults({
      custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, filterable: true },
      noValue: '',
    }) {
      transformations: transformations,
      fieldConfig+: { overrides: overrides },
      options: { showHeader: true, cellHeight: 'sm', frameIndex: 0, sortBy: sort },
    },

  // A row for each set of labels and a column for each query: [{name, expr, as: properties of the column, or null to hide
  // it}]; before and after: the labels that are columns, too.
  joined(title, description, before, columns, after=[], overrides=[], sort=[])::
    local value(i) = 'Value #' + letters[i];
    local numbered = std.mapWithIndex(function(i, column) column { value: value(i) }, columns);
    local order = before + [column.value for column in numbered] + after;
    $.table(
      title,
      description,
      [$.rows(column.expr) for column in columns],
      [
        { id: 'merge', options: {} },
        {
          id: 'organize',
          options: {
            excludeByName: { Time: true } + { [column.value]: true for column in numbered if column.as == null },
            indexByName: { [order[i]]: i for i in std.range(0, std.length(order) - 1) },
            renameByName: {},
          },
        },
      ],
      overrides + [
        $.override(column.value, { displayName: column.name } + column.as)
        for column in numbered
        if column.as != null
      ],
      sort
    ),
  coloured(thresholds):: {
    thresholds: thresholds,
    color: { mode: 'thresholds' },
    'custom.cellOptions': { type: 'color-text' },
  },

  // Rows probe, columns answer; a click on a cell follows the links.
  matrix(title, description, unit, expr, thresholds, links)::
    panel('table', title, description, [$.rows(expr)]) + defaults({
      unit: unit,
      thresholds: thresholds,
      color: { mode: 'thresholds' },
      decimals: 1,
      noValue: '',
      custom: {
        align: 'center',
        cellOptions: { type: 'color-background', mode: 'basic' },
        inspect: false,
        minWidth: 56,
      },
    }) {
      transformations: [{
        id: 'groupingToMatrix',
        options: { rowField: 'from_leaf', columnField: 'to_leaf', valueField: 'Value', emptyValue: 'null' },
      }],
      fieldConfig+: { overrides: [
        $.override('from_leaf\\to_leaf', { displayName: 'from \\ to', 'custom.cellOptions': { type: 'auto' } }),
        $.override('number', { links: links }, 'byType'),
      ] },
      options: { showHeader: true, cellHeight: 'sm', frameIndex: 0 },
    },

  state_timeline(title, description, target, mappings, links=[])::
    panel('state-timeline', title, description, [target]) + defaults({
      mappings: mappings,
      links: links,
      color: { mode: 'thresholds' },
      thresholds: $.steps('text'),
      custom: { fillOpacity: 80, lineWidth: 0 },
    }) {
      options: {
        mergeValues: true,
        showValue: 'auto',
        alignValue: 'left',
        rowHeight: 0.8,
        perPage: 20,
        legend: legend,
        tooltip: { mode: 'single', sort: 'none' },
      },
    },

  // Of the buckets of a histogram; or of how many series have a value about so high.
  heatmap(title, description, unit, target, calculate=false)::
    local format = if calculate then 'time_series' else 'heatmap';
    panel('heatmap', title, description, [target { format: format }]) + defaults({
      custom: { hideFrom: { legend: false, tooltip: false, viz: false }, scaleDistribution: { type: 'linear' } },
    }) {
      options: {
        calculate: calculate,
        cellGap: 1,
        color: {
          mode: 'scheme',
          scheme: 'Oranges',
          fill: 'dark-orange',
          scale: 'exponential',
          exponent: 0.5,
          steps: 64,
          reverse: false,
        },
        exemplars: { color: 'rgba(255,0,255,0.7)' },
        filterValues: { le: 1e-9 },
        legend: { show: true },
        rowsFrame: { layout: 'auto' },
        showValue: 'never',
        tooltip: { mode: 'single', yHistogram: false },
        yAxis: { axisPlacement: 'left', unit: unit, reverse: false },
      } + (if calculate then { calculation: { yBuckets: { mode: 'count', scale: { type: 'log', log: 2 } } } } else {}),
    },
}
