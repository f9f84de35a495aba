// Which pair, which direction, since when? What agents measure between the chosen places.
local dashboard = import 'lib/dashboard.libsonnet';
local panels = import 'lib/panels.libsonnet';
local promql = import 'lib/promql.libsonnet';

local over_time = panels.over_time;
local steps = panels.steps;
local loss = steps('green', [[0.005, 'yellow'], [0.02, 'red']]);
local marks = steps('green', [[0.02, 'yellow'], [0.05, 'orange']]);

local round_trip = promql.any('weft_probe_round_trip_seconds');
local pair = '{{endpoint}} > {{peer}}';
local worst(expr) = over_time('topk(20, %s)' % promql.pairs(expr), pair);
local most(expr) = panels.now('max(%s)' % promql.pairs(expr));

local agent(title, host) = panels.link(title, dashboard.to(dashboard.uid.agents, { host: host }));
local of_series = [
  agent('weftd of ${__field.labels.from_host}', '${__field.labels.from_host}'),
  agent('weftd of ${__field.labels.to_host}', '${__field.labels.to_host}'),
];

local of_cell = [agent('weftd of ${__value.text}', '${__value.raw}')];

local column(name, expr, as) = {
  name: name,
  expr: 'max by (from_host, endpoint, to_host, peer) (%s)' % promql.pairs(expr),
  as: as,
};
local share(name, expr, thresholds) = column(name, expr, { unit: 'percentunit' } + panels.coloured(thresholds));

dashboard.new(
  dashboard.uid.paths,
  'weft: paths',
  'Round trip, loss and congestion marks of pairs of ports between the chosen leaves or hosts, as their agents measure.',
  [
    dashboard.choice.fabric,
    dashboard.choice.job,
    dashboard.choice.aggregator,
    dashboard.choice.place('from_place', 'From'),
    dashboard.choice.place('to_place', 'To'),
  ],
  '',
  [
    {
      height: 4,
      panels: [
        panels.stat(
          'Pairs that probe',
          'Pairs of ports between the chosen places that probe now.',
          'none',
          [panels.now('count(%s)' % promql.pairs(promql.rate(promql.any('weft_peer_sent_total')) + ' > 0'))],
          steps('text')
        ),
        panels.stat(
          'Slowest round trip',
          'The longest median network round trip of a pair.',
          's',
          [most(round_trip)],
          steps('text')
        ),
        panels.stat(
          'Most lost there',
          'The pair that loses most on the way there.',
          'percentunit',
          [most(promql.lost('forward'))],
          loss,
          decimals=1
        ),
        panels.stat(
          'Most lost back',
          'The pair that loses most on the way back.',
          'percentunit',
          [most(promql.lost('back'))],
          loss,
          decimals=1
        ),
        panels.stat(
          'Most marked there',
          'The pair with most congestion marks on the way there. Unknown where no packet could carry a mark.',
          'percentunit',
          [most(promql.marked('forward'))],
          marks,
          decimals=1
        ),
        panels.stat(
          'Most marked back',
          'The pair with most congestion marks on the way back. Unknown where no packet could carry a mark.',
          'percentunit',
          [most(promql.marked('back'))],
          marks,
          decimals=1
        ),
      ],
    },
    {
      title: 'Round trip',
      height: 9,
      panels: [
        panels.time_series(
          'Round trip, slowest pairs',
          'Median network round trip in each window, without the time that hosts took: the 20 slowest pairs at each moment.',
          's',
          [worst(round_trip)],
          links=of_series
        ),
        panels.heatmap(
          'Round trip, all pairs',
          'How many pairs had about which round trip. A second band is a set of pairs with something in common.',
          's',
          over_time(promql.pairs(round_trip), pair),
          calculate=true
        ),
      ],
    },
    {
      title: 'Loss by direction',
      height: 8,
      panels: [
        panels.time_series(
          'Lost on the way there',
          'Share of probes that never arrived at the peer: the 20 worst pairs at each moment.',
          'percentunit',
          [worst(promql.lost('forward'))],
          thresholds=loss,
          links=of_series
        ),
        panels.time_series(
          'Lost on the way back',
          'Share of probes whose acknowledgement was lost: the 20 worst pairs at each moment.',
          'percentunit',
          [worst(promql.lost('back'))],
          thresholds=loss,
          links=of_series
        ),
        panels.time_series(
          'Lost, way unknown',
          'Share of probes lost where the peer told too little to say which way; one that answers nothing looks like this.',
          'percentunit',
          [worst(promql.lost('unknown'))],
          thresholds=loss,
          links=of_series
        ),
      ],
    },
    {
      title: 'Congestion marks by direction',
      height: 8,
      panels: [
        panels.time_series(
          'Marked on the way there',
          'Share of probe packets able to carry a mark that came to the peer with one. Nothing where none could carry one.',
          'percentunit',
          [worst(promql.marked('forward'))],
          thresholds=marks,
          links=of_series
        ),
        panels.time_series(
          'Marked on the way back',
          'The same of what came back. Nothing where no packet could carry a mark.',
          'percentunit',
          [worst(promql.marked('back'))],
          thresholds=marks,
          links=of_series
        ),
      ],
    },
    {
      title: 'Pairs now',
      height: 12,
      panels: [
        panels.joined(
          'Pairs',
          'Each pair of ports as it is now. A click on a host leads to its agent.',
          ['from_host', 'endpoint', 'to_host', 'peer'],
          [
            column('round trip', round_trip, { unit: 's' }),
            share('lost there', promql.lost('forward'), loss),
            share('lost back', promql.lost('back'), loss),
            share('lost, way unknown', promql.lost('unknown'), loss),
            share('marked there', promql.marked('forward'), marks),
            share('marked back', promql.marked('back'), marks),
          ],
          [],
          [
            panels.override('from_host', { displayName: 'from', links: of_cell }),
            panels.override('endpoint', { displayName: 'port' }),
            panels.override('to_host', { displayName: 'to', links: of_cell }),
            panels.override('peer', { displayName: 'port of the peer' }),
          ],
          [{ displayName: 'lost there', desc: true }]
        ),
      ],
    },
  ]
)
