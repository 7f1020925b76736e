// The Kubeflow training operator's own controllers, all six kinds, with what it has no flag for: the rate limit of its
// clients. It has no webhooks and needs no certificate. A yardstick for bench/operator_bench.py.
//
//	peer --kubeconfig FILE --health-probe-bind-address HOST:PORT [--controller-threads N] [--qps N]
package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	pluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
)

var (
	probe   = flag.String("health-probe-bind-address", ":8081", "where /readyz answers")
	threads = flag.Int("controller-threads", 10, "passes at once, per kind")
	qps     = flag.Float64("qps", -1, "requests per second and client; below zero: no limit")
)

func main() {
	options := zap.Options{Development: true} // as shipped: what it costs to log is part of what it costs
	options.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&options)))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		ctrl.Log.Error(err, "cannot go on")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	config.Config.MPIKubectlDeliveryImage = config.MPIKubectlDeliveryImageDefault

	settings, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	settings.QPS, settings.Burst = float32(*qps), max(int(*qps), 1)
	manager, err := ctrl.NewManager(settings, ctrl.Options{
		Scheme:                 scheme(),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probe,
	})
	if err != nil {
		return err
	}
	for kind, setUp := range controllers.SupportedSchemeReconciler {
		if err := setUp(manager, common.GenNonGangSchedulerSetupFunc(), *threads); err != nil {
			return errors.Join(errors.New(kind), err)
		}
	}
	if err := manager.AddReadyzCheck("synced", synced(manager)); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func scheme() *runtime.Scheme {
	known := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(known))
	utilruntime.Must(kubeflowv1.AddToScheme(known))
	utilruntime.Must(volcanov1beta1.AddToScheme(known))
	utilruntime.Must(pluginsv1alpha1.AddToScheme(known))
	return known
}

// synced says yes once the caches are filled, so that nobody measures their start.
func synced(manager ctrl.Manager) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), time.Second)
		defer cancel()
		if !manager.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not filled yet")
		}
		return nil
	}
}
