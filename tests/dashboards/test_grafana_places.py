"""Where a click on a finding leads: the places that its subject names, as the query of the dashboard tells them."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from tests.dashboards import grafana_files

# Subject -> the places whose paths show it.
PLACES = {
    "link:s1>l2": ("All", "l2"), "link:l1>s1": ("l1", "All"), "link:l1-s1": ("All", "All"),
    "link:gpu-1>l1": ("gpu-1", "All"), "link:l1>gpu-1": ("All", "gpu-1"), "link:172.16.0.1>172.16.1.1": ("All", "All"),
    "host:gpu-1": ("gpu-1", "All"), "rnic:gpu-1/rxe0": ("gpu-1", "All"), "switch:s1": ("All", "All"),
    "pair:gpu-1>h3": ("gpu-1", "h3"), "path:gpu-1/rxe0:49152>h3/rxe0": ("gpu-1", "h3"), "overflow": ("All", "All"),
}
SEVERITIES = {"info": 1, "warning": 2, "critical": 3}
TARGET = 'job="weft-aggregator",instance="c:7470",fabric="lab"'


class Places(unittest.TestCase):
    def setUp(self):
        (dashboard,) = (one for one in grafana_files.dashboards() if one["uid"] == "weft-fabric")
        (table,) = (one for one in grafana_files.panels(dashboard) if one["title"] == "Active findings")
        expression = table["targets"][0]["expr"]
        for name, value in (("job", ".+"), ("fabric", ".*"), ("aggregator", "c:7470")):
            expression = expression.replace(f"${name}", value)
        self.expression = expression

    def found(self, series, samples):
        test = {"interval": "15s", "input_series": [{"series": one, "values": "1x4"} for one in series],
                "promql_expr_test": [{"expr": self.expression, "eval_time": "1m", "exp_samples": samples}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tests.yml"  # JSON is YAML
            path.write_text(json.dumps({"rule_files": [], "evaluation_interval": "15s", "tests": [test]}))
            done = subprocess.run(["promtool", "test", "rules", path], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_kind_of_subject_leads_to_its_places_and_a_severity_is_a_number(self):
        known = [f'weft_host_info{{{TARGET},host="gpu-1"}}', f'weft_host_info{{{TARGET},host="h3"}}',
                 f'weft_endpoint_leaf_info{{{TARGET},endpoint="gpu-1/rxe0",leaf="l1"}}',
                 f'weft_endpoint_leaf_info{{{TARGET},endpoint="h3/rxe0",leaf="l2"}}']
        severities = list(SEVERITIES) * len(PLACES)
        active, wanted = [], []
        for (subject, (start, end)), severity in zip(PLACES.items(), severities):
            active.append(f'weft_finding_active{{{TARGET},kind="link_loss",subject="{subject}",severity="{severity}"}}')
            wanted.append({"labels": f'{{kind="link_loss",subject="{subject}",severity="{severity}",from_place="{start}",'
                                     f'to_place="{end}"}}', "value": SEVERITIES[severity]})
        self.found(known + active, wanted)

    def test_two_findings_on_one_subject_stay_two(self):
        both = [f'weft_finding_active{{{TARGET},kind="{kind}",subject="link:s1>s2",severity="critical"}}'
                for kind in ("link_loss", "link_delay")]
        self.found(both, [{"labels": f'{{kind="{kind}",subject="link:s1>s2",severity="critical",from_place="All",'
                                     'to_place="All"}', "value": 3} for kind in ("link_loss", "link_delay")])

    def test_no_finding_is_no_line(self):
        self.found([f'weft_host_info{{{TARGET},host="h3"}}'], [])


if __name__ == "__main__":
    unittest.main()
