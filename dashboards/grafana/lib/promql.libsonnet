// The PromQL that several panels share. Variables of the dashboards stand in it: $job, $fabric, $aggregator (an
// instance), $instance and $host (of weftd), $from_place and $to_place (leaves or hosts).
local scope = ['job=~"$job"', 'fabric=~"$fabric"'];
local select(metric, matchers) = '%s{%s}' % [metric, std.join(',', scope + matchers)];
local named(expr, label, text, of, pattern) =
  'label_replace(%s, "%s", "%s", "%s", "%s")' % [expr, label, text, of, pattern];

{
  // Of any program; of the chosen weftd; of the chosen aggregator.
  any(metric, matchers=[]):: select(metric, matchers),
  agent(metric, matchers=[]):: select(metric, ['instance=~"$instance"'] + matchers),
  aggregator(metric, matchers=[]):: select(metric, ['instance="$aggregator"'] + matchers),

  rate(counter):: 'rate(%s[$__rate_interval])' % counter,
  increase(counter):: 'increase(%s[$__rate_interval])' % counter,

  // Series of weftd with the name of its host.
  by_host(expr):: |||
    (
      %s
    )
    * on (fabric, job, instance) group_left (host)
    group by (fabric, job, instance, host) (%s)
  ||| % [expr, $.agent('weft_agent_info', ['host=~"$host"'])],

  // What the aggregator says of pairs of leaves: a value, or a share of two.
  mesh(metric):: 'sum by (from_leaf, to_leaf) (%s)' % $.aggregator(metric),
  mesh_share(part, whole):: '%s\n/ (%s > 0)' % [$.mesh(part), $.mesh(whole)],

  // What agents measure to peers, of pairs between the chosen places. Which leaf a port hangs on only the aggregator
  // knows; hosts are told by the agents' own pages, so that these work while it is down.
  pairs(expr):: named(named(|||
    (
      %s
    )
    * on (fabric, job, instance, device) group_left (endpoint)
    group by (fabric, job, instance, device, endpoint) (%s)
    and on (fabric, endpoint) (
      %s
      or %s
    )
    and on (fabric, peer) (
      group by (fabric, peer) (%s)
      or %s
    )
  ||| % [
    expr,
    $.any('weft_endpoint_info'),
    $.any('weft_endpoint_info', ['endpoint=~"($from_place)/.+"']),
    $.any('weft_endpoint_leaf_info', ['leaf=~"$from_place"']),
    $.any('weft_peer_sent_total', ['peer=~"($to_place)/.+"']),
    named($.any('weft_endpoint_leaf_info', ['leaf=~"$to_place"']), 'peer', '$1', 'endpoint', '(.+)'),
  ], 'from_host', '$1', 'endpoint', '(.+)/.+'), 'to_host', '$1', 'peer', '(.+)/.+'),
  lost(direction):: '%s / ignoring (direction) (%s > 0)' % [
    $.rate($.any('weft_peer_lost_total', ['direction="%s"' % direction])),
    $.rate($.any('weft_peer_sent_total')),
  ],
  marked(direction):: '%s / (%s > 0)' % [
    $.rate($.any('weft_peer_ce_total', ['direction="%s"' % direction])),
    $.rate($.any('weft_peer_ecn_capable_total', ['direction="%s"' % direction])),
  ],

  // Leaves and hosts by name, for the choice of places.
  places:: 'group by (place) (%s or %s)' % [
    named($.any('weft_endpoint_leaf_info'), 'place', '$1', 'leaf', '(.+)'),
    named($.any('weft_agent_info'), 'place', '$1', 'host', '(.+)'),
  ],

  // Active findings: severity as a number (1 info, 2 warning, 3 critical), and the places whose paths show it. Of a
  // link one end decides: its host, else its leaf; of a link that is known without its direction neither.
  findings::
    local active(pattern, from, to) = named(
      named($.aggregator('weft_finding_active', ['subject=~"%s"' % pattern]), 'from_place', from, 'subject', pattern),
      'to_place',
      to,
      'subject',
      pattern
    );
    local known(end, metric, label) =
      'group by (fabric, %s) (%s)' % [end, named($.aggregator(metric), end, '$1', label, '(.+)')];
    local link = 'link:(.+)>(.+)';
    local link_end(metric, label) = [
      '%s\nand on (fabric, from_place) %s' % [active(link, '$1', 'All'), known('from_place', metric, label)],
      '%s\nand on (fabric, to_place) %s' % [active(link, 'All', '$2'), known('to_place', metric, label)],
    ];
    local ways = link_end('weft_host_info', 'host') + link_end('weft_endpoint_leaf_info', 'leaf') + [
      active('(?:host|rnic):([^/]+).*', '$1', 'All'),
      active('(?:pair|path):([^/>]+)[^>]*>([^/]+).*', '$1', '$2'),
      active('.*', 'All', 'All'),
    ];
    local level(severity, number) = named('vector(%d)' % number, 'severity', severity, '', '');
    'max by (kind, subject, severity, from_place, to_place) (\n(\n%s\n)\n* on (severity) group_left ()\n(%s)\n)' % [
      std.join('\nor on (kind, subject)\n', ways),
      std.join(' or ', [level('info', 1), level('warning', 2), level('critical', 3)]),
    ],
}
