"""What only the Helm chart has: the pod of `helm test`."""

from gangline.install.naming import NAMESPACE, OPERATOR, full_name, labels
from gangline.install.nodes import Both, Node, Not, Text, Value, When
from gangline.install.workloads import IMAGE, METRICS_PORT, PULL_SECRETS

# Reads the metrics as Prometheus would: by the Service's name, from another pod. The operator may still be starting.
_PROGRAM = """
import sys, time, urllib.request
for _ in range(60):
    try:
        page = urllib.request.urlopen(sys.argv[1], timeout=5).read().decode()
        break
    except OSError as error:
        print(error, flush=True)
        time.sleep(1)
else:
    sys.exit("the operator does not answer")
sys.exit(0 if "leader_election_master_status" in page else "these are not the operator's metrics")
""".lstrip()

CHART_TESTS: tuple[Node, ...] = (
    When(
        Both(Value("metrics.enabled"), Not(Value("metrics.secure.enabled"))),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": full_name("test"),
                "namespace": NAMESPACE,
                "labels": labels("test"),
                "annotations": {
                    "helm.sh/hook": "test",
                    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
                },
            },
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "imagePullSecrets": PULL_SECRETS,
                "securityContext": Value("podSecurityContext"),
                "nodeSelector": When(Value("nodeSelector"), Value("nodeSelector")),
                "tolerations": When(Value("tolerations"), Value("tolerations")),
                "containers": [
                    {
                        "name": "test",
                        "image": IMAGE,
                        "imagePullPolicy": Value("image.pullPolicy"),
                        "command": ["python3", "-c", _PROGRAM],
                        "args": [Text(("http://", full_name(OPERATOR), f":{METRICS_PORT}/metrics"))],
                        "securityContext": Value("securityContext"),
                    }
                ],
            },
        },
    ),
)
