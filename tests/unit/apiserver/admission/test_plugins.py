"""The names of admission plugins."""

from gangline.apiserver.admission import plugins
from gangline.apiserver.admission.plugins import ABSENT_PLUGINS, PLUGIN_NAMES
from gangline.apiserver.registry.admission import AdmissionPlugin

NO_PLUGINS_OF_KUBERNETES = {"CertificateRequester", "CustomResourceLifecycle", "RoleEscalation"}


def test_every_plugin_can_be_left_out_by_its_name() -> None:
    classes = [item for item in vars(plugins).values() if isinstance(item, type) and issubclass(item, AdmissionPlugin)]
    names = {plugin.name for plugin in classes if plugin is not AdmissionPlugin}
    assert names == PLUGIN_NAMES | NO_PLUGINS_OF_KUBERNETES
    assert not names & ABSENT_PLUGINS
