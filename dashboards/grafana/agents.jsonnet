// Can weft see? weftd of the chosen hosts: probing, its stream to the aggregator, ports, and what it takes.
local dashboard = import 'lib/dashboard.libsonnet';
local panels = import 'lib/panels.libsonnet';
local promql = import 'lib/promql.libsonnet';

local agent = promql.agent;
local rate(counter) = promql.rate(agent(counter));
// With a thousand hosts chosen a panel shows those that stand out.
local over_time(expr, legend='{{host}}') = panels.over_time('topk(20, %s)' % promql.by_host(expr), legend);
local lowest(expr, legend='{{host}}') = panels.over_time('bottomk(50, %s)' % promql.by_host(expr), legend);
local steps = panels.steps;

local by_device = '{{host}} {{device}}';
local up = { '0': ['down', 'red'], '1': ['up', 'green'] };

local now(name, expr, as) = { name: name, expr: 'max by (host) (%s)' % promql.by_host(expr), as: as };
local of_hosts = [
  {
    name: 'info',
    expr: 'max by (host, instance, version, kernel) (%s)' % agent('weft_agent_info', ['host=~"$host"']),
    as: null,
  },
  now(
    'cannot measure',
    agent('weft_agent_limitations'),
    { unit: 'none' } + panels.coloured(steps('text', [[1, 'orange']]))
  ),
  now(
    'stream',
    agent('weft_stream_connected'),
    { mappings: panels.words(up), 'custom.cellOptions': { type: 'color-text' } }
  ),
  now('probes', 'sum without (device) (%s)' % rate('weft_probe_sent_total'), { unit: 'pps' }),
  now('CPU', 'sum without (mode) (%s)' % rate('weft_process_cpu_seconds_total'), { unit: 'percentunit' }),
  now('CPU pressure', agent('weft_host_cpu_pressure_ratio'), { unit: 'percentunit' }),
];
local of_ports = ['host', 'device', 'port', 'rate', 'netdev', 'link_layer', 'driver', 'firmware'];
local to_paths = panels.link('Paths from ${__value.text}', dashboard.to(dashboard.uid.paths, {
  from_place: '${__value.raw}',
  to_place: 'All',
}));
local choice = dashboard.choice;

dashboard.new(
  dashboard.uid.agents,
  'weft: agents',
  'weftd on the chosen hosts: can it measure, what does it send and take? Of many hosts those that stand out: the 20 highest, or the 50 worst states.',
  [choice.fabric, choice.job, choice.aggregator, choice.host, choice.instance],
  '#/hosts',
  [
    {
      title: 'Hosts',
      height: 9,
      panels: [
        panels.joined(
          'Hosts',
          'One line for each weftd that is scraped. weft status on the host says what it cannot measure, and how to get it.',
          ['host'],
          of_hosts,
          ['version', 'kernel', 'instance'],
          [panels.override('host', { links: [to_paths] })],
          [{ displayName: 'cannot measure', desc: true }]
        ) { width:: 15 },
        panels.state_timeline(
          'Stream to the aggregator',
          'Up or down. While it is down the host probes on by its last plan, and keeps what fits.',
          lowest(agent('weft_stream_connected')),
          panels.words(up)
        ) { width:: 9 },
      ],
    },
    {
      title: 'Probing',
      height: 8,
      panels: [
        panels.time_series(
          'Probes sent',
          'Probes that left each device.',
          'pps',
          [over_time(rate('weft_probe_sent_total'), by_device)]
        ),
        panels.time_series(
          'Probes held back',
          'Probes not sent: over the budget, or this host came to them too late; and those that could not leave.',
          'pps',
          [
            over_time(rate('weft_probe_throttled_total'), by_device + ' held back'),
            over_time(rate('weft_probe_local_errors_total'), by_device + ' failed'),
          ]
        ),
        panels.time_series(
          'Probes answered',
          'Probes of peers that this host answered.',
          'pps',
          [over_time(rate('weft_probe_answered_total'), by_device)]
        ),
        panels.time_series(
          'Packets ignored',
          'Received packets that were no probe to answer, by reason; and trace answers that were none.',
          'pps',
          [
            over_time('sum without (device) (%s)' % rate('weft_probe_rejected_total'), '{{host}} {{reason}}'),
            over_time(rate('weft_trace_rejected_total'), '{{host}} trace: {{reason}}'),
          ]
        ),
      ],
    },
    {
      title: 'Is the host itself late?',
      height: 8,
      panels: [
        panels.time_series(
          'Scheduling gap',
          'Longest time weftd woke late in a window. A late host accuses no link.',
          's',
          [over_time(agent('weft_host_scheduling_gap_seconds'))],
          thresholds=steps('green', [[0.05, 'orange']])
        ),
        panels.time_series(
          'Delay of the prober',
          'Longest delay of the prober itself in a window; it is no part of a round trip.',
          's',
          [over_time(agent('weft_probe_own_delay_seconds'), by_device)]
        ),
        panels.time_series(
          'CPU pressure',
          'Share of the last 10 s in which some task of the host waited for a CPU.',
          'percentunit',
          [over_time(agent('weft_host_cpu_pressure_ratio'))]
        ),
        panels.time_series(
          'CPU of weftd',
          'CPU time that weftd uses, all its threads; 100% is one CPU.',
          'percentunit',
          [over_time('sum without (mode) (%s)' % rate('weft_process_cpu_seconds_total'))]
        ),
      ],
    },
    {
      title: 'Stream to the aggregator',
      height: 8,
      panels: [
        panels.time_series(
          'Records kept',
          'Records that wait to be sent, and those without an acknowledgement yet.',
          'none',
          [
            over_time(agent('weft_stream_waiting'), '{{host}} waiting'),
            over_time(agent('weft_stream_unacknowledged'), '{{host}} unacknowledged'),
          ]
        ),
        panels.time_series(
          'Records sent and dropped',
          'Records sent, and those dropped, by class.',
          'cps',
          [
            over_time(rate('weft_stream_records_total'), '{{host}} sent'),
            over_time(rate('weft_stream_dropped_total'), '{{host}} dropped: {{class}}'),
          ]
        ),
        panels.time_series(
          'Connections that failed',
          'Connections to the aggregator that failed or ended, in each step.',
          'none',
          [over_time(promql.increase(agent('weft_stream_failures_total')))]
        ),
        panels.time_series(
          'Trace packets',
          'Trace packets sent, and those that a router or host answered.',
          'pps',
          [
            over_time(rate('weft_trace_sent_total'), '{{host}} sent'),
            over_time(rate('weft_trace_answered_total'), '{{host}} answered'),
          ]
        ),
      ],
    },
    {
      title: 'Ports',
      height: 8,
      panels: [
        panels.state_timeline(
          'Ports',
          'Whether the state of each RDMA port is ACTIVE. Nothing on hosts without RDMA.',
          lowest(agent('weft_port_active'), '{{host}} {{device}}/{{port}}'),
          panels.words({ '0': ['not active', 'red'], '1': ['active', 'green'] })
        ),
        panels.state_timeline(
          'Devices that probe',
          'Whether probes can leave from each device.',
          lowest(agent('weft_probe_endpoint_open'), by_device),
          panels.words({ '0': ['closed', 'red'], '1': ['open', 'green'] })
        ),
        panels.table(
          'What the ports are',
          'Each RDMA port as the kernel tells it.',
          [panels.rows('max by (%s) (%s)' % [std.join(', ', of_ports), promql.by_host(agent('weft_port_info'))])],
          [{
            id: 'organize',
            options: {
              excludeByName: { Time: true, Value: true },
              indexByName: { [of_ports[i]]: i for i in std.range(0, std.length(of_ports) - 1) },
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
        panels.time_series(
          'Age of the page',
          'Time since what the page says was gathered. It grows while weftd hangs.',
          's',
          [over_time(agent('weft_page_age_seconds'))],
          thresholds=steps('green', [[30, 'red']])
        ),
        panels.time_series(
          'Samples left off the page',
          'Label sets past the bound of their family, and samples that a scraper would choke on.',
          'cps',
          [
            over_time('sum without (family) (%s)' % rate('weft_metrics_overflow_total'), '{{host}} over a bound'),
            over_time(rate('weft_metrics_refused_total'), '{{host}} refused'),
          ]
        ),
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
