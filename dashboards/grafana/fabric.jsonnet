// Is it the network, and where? What the aggregator says of the whole fabric.
local dashboard = import 'lib/dashboard.libsonnet';
local panels = import 'lib/panels.libsonnet';
local promql = import 'lib/promql.libsonnet';

local aggregator = promql.aggregator;
local rate(counter) = promql.rate(aggregator(counter));
local now = panels.now;
local over_time = panels.over_time;
local steps = panels.steps;

// The raise and clear thresholds of aggregator.toml as they come.
local loss = steps('green', [[0.005, 'yellow'], [0.02, 'red']]);
local marks = steps('green', [[0.02, 'yellow'], [0.05, 'orange']]);
local severities = panels.words({ '1': ['info', 'blue'], '2': ['warning', 'orange'], '3': ['critical', 'red'] });

local to_paths(from, to) = panels.link('Paths between', dashboard.to(dashboard.uid.paths, {
  from_place: from,
  to_place: to,
}));
local of_cell = [to_paths('${__data.fields[0]}', '${__field.name}')];
local of_row = [to_paths('${__data.fields.from_place}', '${__data.fields.to_place}')];
local of_series = [to_paths('${__field.labels.from_place}', '${__field.labels.to_place}')];

// Zero only where an aggregator says so: without one nothing is known.
local of_severity(severity) =
  local active = aggregator('weft_finding_active', ['severity="%s"' % severity]);
  now('sum(%s) or 0 * sum(%s)' % [active, aggregator('weft_link_known')], severity);
local of_state(state) = now('sum(%s)' % aggregator('weft_aggregator_agents', ['state="%s"' % state]), state);
local lost = promql.mesh_share('weft_mesh_probes_lost', 'weft_mesh_probes');

dashboard.new(
  dashboard.uid.fabric,
  'weft: fabric',
  'Findings, the mesh leaf by leaf and coverage, as the aggregator judges. A cell or a finding leads to its paths.',
  [dashboard.choice.fabric, dashboard.choice.job, dashboard.choice.aggregator],
  '',
  [
    {
      height: 4,
      panels: [
        panels.stat(
          'Findings now',
          'By severity. None means healthy only where all agents report and all links are covered.',
          'none',
          [of_severity('critical'), of_severity('warning'), of_severity('info')],
          steps('green', [[1, 'orange']])
        ) {
          width:: 7,
          fieldConfig+: { overrides: [
            panels.override('critical', { thresholds: steps('green', [[1, 'red']]) }),
            panels.override('info', { thresholds: steps('text') }),
          ] },
        },
        panels.stat(
          'Links covered',
          'Share of the known directed links with probes enough to be judged. A sick one of the others is not named.',
          'percentunit',
          [now('%s / (%s > 0)' % [aggregator('weft_link_covered'), aggregator('weft_link_known')])],
          steps('red', [[0.9, 'orange'], [1, 'green']]),
          decimals=1
        ) { width:: 4 },
        panels.stat(
          'Agents',
          'Hosts by what the aggregator hears of their agents. A silent one announced no stop.',
          'none',
          [of_state('reporting'), of_state('silent'), of_state('stopped')],
          steps('text')
        ) {
          width:: 7,
          fieldConfig+: { overrides: [panels.override('silent', { thresholds: steps('green', [[1, 'red']]) })] },
        },
        panels.stat(
          'Probes lost',
          'Share of all probes between leaves that were lost in the window that is judged, either way.',
          'percentunit',
          [now('sum(%s) / (sum(%s) > 0)' % [aggregator('weft_mesh_probes_lost'), aggregator('weft_mesh_probes')])],
          loss,
          decimals=2
        ) { width:: 3 },
        panels.stat(
          'Age of what is shown',
          'Time since the aggregator gathered what its page says. It grows while the aggregator hangs.',
          's',
          [now('max(%s)' % aggregator('weft_page_age_seconds'))],
          steps('green', [[10, 'orange'], [30, 'red']]),
          decimals=1
        ) { width:: 3 },
      ],
    },
    {
      title: 'Findings',
      height: 9,
      panels: [
        panels.state_timeline(
          'Findings over time',
          'One line for each finding while it is active, by its severity.',
          over_time(promql.findings, '{{kind}} {{subject}}'),
          severities,
          of_series
        ) { width:: 13 },
        panels.table(
          'Active findings',
          'Worst first. A click leads to the paths between the places that show it. Evidence is in the console.',
          [panels.rows(promql.findings)],
          [{
            id: 'organize',
            options: {
              excludeByName: { Time: true, severity: true },
              indexByName: { Value: 0, kind: 1, subject: 2, from_place: 3, to_place: 4 },
              renameByName: {},
            },
          }],
          [
            panels.override('Value', {
              displayName: 'severity',
              mappings: severities,
              'custom.cellOptions': { type: 'color-text' },
              'custom.width': 90,
            }),
            panels.override('subject', { links: of_row }),
            panels.override('kind', { links: of_row }),
            panels.override('from_place', { displayName: 'from', 'custom.width': 90 }),
            panels.override('to_place', { displayName: 'to', 'custom.width': 90 }),
          ],
          [{ displayName: 'severity', desc: true }]
        ) { width:: 11 },
      ],
    },
    {
      title: 'Mesh, leaf by leaf: rows probe, columns answer',
      height: 10,
      panels: [
        panels.matrix(
          'Loss',
          'Share of probes lost in the window that is judged, either way. Leaves past the 64 with most ports are "other".',
          'percentunit',
          lost,
          loss,
          of_cell
        ),
        panels.matrix(
          'Round trip',
          'Median network round trip of the middle pair of ports. Compare with the neighbours.',
          's',
          promql.mesh('weft_mesh_round_trip_seconds'),
          steps('green', [[0.001, 'yellow'], [0.05, 'red']]),
          of_cell
        ),
        panels.matrix(
          'Congestion marks',
          'Share of packets able to carry a mark that came with one. Empty where none could carry one: not measured, not 0.',
          'percentunit',
          promql.mesh_share('weft_mesh_packets_ce', 'weft_mesh_packets_ecn_capable'),
          marks,
          of_cell
        ),
      ],
    },
    {
      height: 8,
      panels: [
        panels.time_series(
          'Worst pairs of leaves, loss',
          'The ten pairs of leaves with most loss at each moment.',
          'percentunit',
          [over_time('topk(10, %s)' % lost, '{{from_leaf}} > {{to_leaf}}')],
          thresholds=loss,
          links=[to_paths('${__field.labels.from_leaf}', '${__field.labels.to_leaf}')]
        ),
        panels.time_series(
          'Coverage',
          'Directed links known from topology or traces, and those of them with probes enough to be judged.',
          'none',
          [over_time(aggregator('weft_link_known'), 'known'), over_time(aggregator('weft_link_covered'), 'covered')]
        ),
        panels.time_series(
          'Findings raised',
          'How many findings of each kind were raised in each step.',
          'none',
          [over_time('sum by (kind) (%s)' % promql.increase(aggregator('weft_findings_total')), '{{kind}}')],
          fill=30
        ) { fieldConfig+: { defaults+: { decimals: 0 } } },
      ],
    },
    {
      title: 'Aggregator',
      height: 7,
      panels: [
        panels.heatmap(
          'Time to detect',
          'From the first bad evidence to the finding, of findings raised in each step.',
          's',
          over_time('sum by (le) (%s)' % promql.increase(aggregator('weft_finding_detection_seconds_bucket')), '{{le}}')
        ),
        panels.time_series(
          'Judging',
          'How long one judgement takes; it is made each second.',
          's',
          [over_time(aggregator('weft_judge_seconds'), 'judgement')],
          thresholds=steps('green', [[0.5, 'orange'], [1, 'red']])
        ),
        panels.time_series(
          'Records',
          'Records stored, and what did not come so far, by reason.',
          'cps',
          [
            over_time('sum(%s)' % rate('weft_stream_records_total'), 'stored'),
            over_time('sum by (class) (%s)' % rate('weft_stream_dropped_total'), 'dropped: {{class}}'),
            over_time('sum by (reason) (%s)' % rate('weft_stream_rejected_total'), 'rejected: {{reason}}'),
            over_time('sum(%s)' % rate('weft_localise_dropped_total'), 'not judged'),
          ]
        ),
        panels.time_series(
          'Store',
          'Size of the database file.',
          'bytes',
          [over_time(aggregator('weft_store_size_bytes'), 'size')]
        ),
      ],
    },
  ]
)
