// A controller as people write them, on controller-runtime: every ConfigMap with a label gets a Secret of its own.
// It reads its input and ends when that does, so that it never outlives the test.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const label = "clients.example/mirrored"

type mirror struct {
	client.Client
}

func (m *mirror) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var source corev1.ConfigMap
	if err := m.Get(ctx, request.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: source.Name, Namespace: source.Namespace}}
	done, err := controllerutil.CreateOrUpdate(ctx, m.Client, secret, func() error {
		secret.Data = map[string][]byte{}
		for key, value := range source.Data {
			secret.Data[key] = []byte(value)
		}
		return controllerutil.SetControllerReference(&source, secret, m.Scheme())
	})
	if err != nil || done == controllerutil.OperationResultNone {
		return ctrl.Result{}, err
	}
	before := source.DeepCopy()
	if source.Annotations == nil {
		source.Annotations = map[string]string{}
	}
	source.Annotations["clients.example/secret"] = string(secret.UID)
	return ctrl.Result{}, m.Patch(ctx, &source, client.MergeFrom(before))
}

func run(namespace string) error {
	ctrl.SetLogger(zap.New())
	config := ctrl.GetConfigOrDie()
	if len(os.Args) > 2 {
		config.AcceptContentTypes = os.Args[2] // and nothing else
	}
	manager, err := ctrl.NewManager(config, manager.Options{
		LeaderElection:          true,
		LeaderElectionID:        "mirror",
		LeaderElectionNamespace: namespace,
		// Given up at once on the way out, so that the next one need not wait.
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	labelled, err := predicate.LabelSelectorPredicate(metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).
		Owns(&corev1.Secret{}).
		Complete(&mirror{Client: manager.GetClient()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctrl.SetupSignalHandler())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return manager.Start(ctx)
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
