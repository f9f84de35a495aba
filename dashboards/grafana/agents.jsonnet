// Can weft see? weftd of the chosen hosts: probing, its stream to the aggregator, ports, and what it takes.
local dashboard = import 'lib/dashboard.libsonnet';
local panels = import 'lib/panels.libsonnet';
local promql = import 'lib/promql.libsonnet';

local agent = promql.agent;
local rate(counter) = promql.rate(agent(counter));
local over_time(expr, legend='{{host}}') = panels.over_time(promql.by_host(expr), legend);
local steps = panels.steps;

local by_device = '{{host}} {{device}}';
local now(expr) = panels.rows('max by (host) (%s)' % promql.by_host(expr));

local columns = [  // of the table of hosts: name, expression, overrides
  ['cannot measure', agent('weft_agent_limitations'), { unit: 'none', thresholds: steps('text', [[1, 'orange']]), color: { mode: 'thresholds' }, 'custom.cellOptions': { type: 'color-text' } }],
  ['stream', agent('weft_stream_connected'), { mappings: panels.words({ '0': ['down', 'red'], '1': ['up', 'green'] }), 'custom.cellOptions': { type: 'color-text' } }],
  ['probes', 'sum without (device) (%s)' % rate('weft_probe_sent_total'), { unit: 'pps' }],
  ['CPU', 'sum without (mode) (%s)' % rate('weft_process_cpu_seconds_total'), { unit: 'percentunit' }],
  ['CPU pressure', agent('weft_host_cpu_pressure_ratio'), { unit: 'percentunit' }],
];
local column(i) = 'Value #' + std.stringChars('BCDEFG')[i];

dashboard.new(
  dashboard.uid.agents,
  'weft: agents',
  'weftd on the chosen hosts: whether it can measure, what it sends, and what it takes.',
  [dashboard.choice.fabric, dashboard.choice.job, dashboard.choice.aggregator, dashboard.choice.host, dashboard.choice.instance],
  '#/hosts',
  [
    {
      title: 'Hosts',
      height: 9,
      panels: [
        panels.table(
          'Hosts',
          'One line for each weftd that is scraped. What it cannot measure, and how to get it, says weft status on the host.',
          [panels.rows('max by (host, instance, version, kernel) (%s)' % agent('weft_agent_info', ['host=~"$host"']))]
          + [now(one[1]) for one in columns],
          [{ id: 'merge', options: {} }, {
            id: 'organize',
            options: {
              excludeByName: { Time: true, 'Value #A': true },
              indexByName: { host: 0 } + { [column(i)]: 1 + i for i in std.range(0, std.length(columns) - 1) }
                           + { version: 7, kernel: 8, instance: 9 },
              renameByName: {},
            },
          }],
          [panels.override('host', { links: [panels.link('Paths from ${__value.text}', dashboard.to(dashboard.uid.paths, { from_place: '${__value.raw}', to_place: 'All' }))] })]
          + [panels.override(column(i), { displayName: columns[i][0] } + columns[i][2]) for i in std.range(0, std.length(columns) - 1)],
          [{ displayName: 'cannot measure', desc: true }]
        ) { width:: 15 },
        panels.state_timeline(
          'Stream to the aggregator',
          'Up or down. While it is down the host probes on by its last plan, and keeps what fits.',
          over_time(agent('weft_stream_connected')),
          panels.words({ '0': ['down', 'red'], '1': ['up', 'green'] })
        ) { width:: 9 },
      ],
    },
    {
      title: 'Probing',
      height: 8,
      panels: [
        panels.time_series('Probes sent', 'Probes that left each device.', 'pps', [over_time(rate('weft_probe_sent_total'), by_device)]),
        panels.time_series('Probes held back', 'Probes not sent: over the budget, or this host came to them too late; and those that could not leave.', 'pps', [
          over_time(rate('weft_probe_throttled_total'), by_device + ' held back'),
          over_time(rate('weft_probe_local_errors_total'), by_device + ' failed'),
        ]),
        panels.time_series('Probes answered', 'Probes of peers that this host answered.', 'pps', [over_time(rate('weft_probe_answered_total'), by_device)]),
        panels.time_series('Packets ignored', 'Received packets that were no probe to answer, by reason; and trace answers that were none.', 'pps', [
          over_time('sum without (device) (%s)' % rate('weft_probe_rejected_total'), '{{host}} {{reason}}'),
          over_time(rate('weft_trace_rejected_total'), '{{host}} trace: {{reason}}'),
        ]),
      ],
    },
    {
      title: 'Is the host itself late?',
      height: 8,
      panels: [
        panels.time_series('Scheduling gap', 'Longest time weftd woke late in a window. A late host accuses no link.', 's', [over_time(agent('weft_host_scheduling_gap_seconds'))], thresholds=steps('green', [[0.05, 'orange']])),
        panels.time_series('Delay of the prober', 'Longest delay of the prober itself in a window; it is no part of a round trip.', 's', [over_time(agent('weft_probe_own_delay_seconds'), by_device)]),
        panels.time_series('CPU pressure', 'Share of the last 10 s in which some task of the host waited for a CPU.', 'percentunit', [over_time(agent('weft_host_cpu_pressure_ratio'))]),
        panels.time_series('CPU of weftd', 'CPU time that weftd uses, all its threads; 100% is one CPU.', 'percentunit', [over_time('sum without (mode) (%s)' % rate('weft_process_cpu_seconds_total'))]),
      ],
    },
    {
      title: 'Stream to the aggregator',
      height: 8,
      panels: [
        panels.time_series('Records kept', 'Records that wait to be sent, and those without an acknowledgement yet.', 'none', [
          over_time(agent('weft_stream_waiting'), '{{host}} waiting'),
          over_time(agent('weft_stream_unacknowledged'), '{{host}} unacknowledged'),
        ]),
        panels.time_series('Records sent and dropped', 'Records sent, and those dropped, by class.', 'cps', [
          over_time(rate('weft_stream_records_total'), '{{host}} sent'),
          over_time(rate('weft_stream_dropped_total'), '{{host}} dropped: {{class}}'),
        ]),
        panels.time_series('Connections that failed', 'Connections to the aggregator that failed or ended, in each step.', 'none', [over_time(promql.increase(agent('weft_stream_failures_total')))]),
        panels.time_series('Trace packets', 'Trace packets sent, and those that a router or host answered.', 'pps', [
          over_time(rate('weft_trace_sent_total'), '{{host}} sent'),
          over_time(rate('weft_trace_answered_total'), '{{host}} answered'),
        ]),
      ],
    },
    {
      title: 'Ports',
      height: 8,
      panels: [
        panels.state_timeline(
          'Ports',
          'Whether the state of each RDMA port is ACTIVE. Nothing on hosts without RDMA.',
          over_time(agent('weft_port_active'), '{{host}} {{device}}/{{port}}'),
          panels.words({ '0': ['not active', 'red'], '1': ['active', 'green'] })
        ),
        panels.state_timeline(
          'Devices that probe',
          'Whether probes can leave from each device.',
          over_time(agent('weft_probe_endpoint_open'), by_device),
          panels.words({ '0': ['closed', 'red'], '1': ['open', 'green'] })
        ),
        panels.table(
          'What the ports are',
          'Each RDMA port as the kernel tells it; gid is the one that is probed from.',
          [panels.rows('max by (host, device, port, link_layer, driver, firmware, netdev, gid, rate) (%s)' % promql.by_host(agent('weft_port_info')))],
          [{
            id: 'organize',
            options: {
              excludeByName: { Time: true, Value: true },
              indexByName: { host: 0, device: 1, port: 2, rate: 3, netdev: 4, link_layer: 5, driver: 6, firmware: 7, gid: 8 },
              renameByName: {},
            },
          }]
        ),
      ],
    },
    {
      title: 'Trust in what weftd says of itself',
      height: 7,
      panels: [
        panels.time_series('Age of the page', 'Time since what the page says was gathered. It grows while weftd hangs.', 's', [over_time(agent('weft_page_age_seconds'))], thresholds=steps('green', [[30, 'red']])),
        panels.time_series('Samples left off the page', 'Label sets past the bound of their family, and samples that a scraper would choke on.', 'cps', [
          over_time('sum without (family) (%s)' % rate('weft_metrics_overflow_total'), '{{host}} over a bound'),
          over_time(rate('weft_metrics_refused_total'), '{{host}} refused'),
        ]),
        panels.state_timeline(
          'Configuration',
          'Whether the configuration on disk is the one in force.',
          over_time(agent('weft_config_rejected')),
          panels.words({ '0': ['in force', 'green'], '1': ['bad file, the old one holds', 'red'] })
        ),
      ],
    },
  ]
)
