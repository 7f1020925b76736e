from gangline.testing.builders import make_job as make_job
from gangline.testing.builders import make_member as make_member
from gangline.testing.builders import make_pod as make_pod
from gangline.testing.builders import make_template as make_template
from gangline.testing.builders import make_tfjob as make_tfjob
from gangline.testing.clock import FakeClock as FakeClock
from gangline.testing.clock import settle as settle
from gangline.testing.cluster import OperatorCluster as OperatorCluster
from gangline.testing.cluster import local_cluster as local_cluster
from gangline.testing.cluster import operator_cluster as operator_cluster
from gangline.testing.controllers import assert_controller_converges as assert_controller_converges
from gangline.testing.converge import Step as Step
from gangline.testing.converge import assert_converges as assert_converges
from gangline.testing.converge import assert_survives as assert_survives
from gangline.testing.converge import random_story as random_story
from gangline.testing.faults import Fault as Fault
from gangline.testing.faults import Faults as Faults
from gangline.testing.faults import FaultyTransport as FaultyTransport
from gangline.testing.faults import SimulatedCrash as SimulatedCrash
from gangline.testing.threaded import ThreadedCluster as ThreadedCluster
from gangline.testing.threaded import threaded_cluster as threaded_cluster
from gangline.testing.world.kubelet import Kubelet as Kubelet
from gangline.testing.world.world import World as World

Died = SimulatedCrash
