// Webhooks as people write them, on controller-runtime: ConfigMaps with a label get a default, and are checked.
// It reads its input and ends when that does, so that it never outlives the test.
//
//	gowebhook FOLDER PORT    FOLDER has tls.crt and tls.key
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type rules struct{}

func (rules) Default(_ context.Context, object runtime.Object) error {
	config := object.(*corev1.ConfigMap)
	if _, found := config.Data["size"]; !found {
		if config.Data == nil {
			config.Data = map[string]string{}
		}
		config.Data["size"] = "1"
	}
	return nil
}

func check(object runtime.Object) (admission.Warnings, error) {
	config := object.(*corev1.ConfigMap)
	size, err := strconv.Atoi(config.Data["size"])
	if err != nil {
		return nil, fmt.Errorf("size is no number: %w", err)
	}
	if size > 9 {
		return admission.Warnings{"sizes above 9 are slow"}, nil
	}
	return nil, nil
}

func (rules) ValidateCreate(_ context.Context, object runtime.Object) (admission.Warnings, error) {
	return check(object)
}

func (rules) ValidateUpdate(_ context.Context, old, object runtime.Object) (admission.Warnings, error) {
	if old.(*corev1.ConfigMap).Data["name"] != object.(*corev1.ConfigMap).Data["name"] {
		return nil, fmt.Errorf("the name never changes")
	}
	return check(object)
}

func (rules) ValidateDelete(_ context.Context, object runtime.Object) (admission.Warnings, error) {
	if object.(*corev1.ConfigMap).Data["keep"] == "true" {
		return nil, fmt.Errorf("it is to be kept")
	}
	return nil, nil
}

func run(folder, text string) error {
	ctrl.SetLogger(zap.New())
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), manager.Options{
		Metrics:       server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: folder}),
	})
	if err != nil {
		return err
	}
	err = ctrl.NewWebhookManagedBy(manager).For(&corev1.ConfigMap{}).WithDefaulter(rules{}).WithValidator(rules{}).Complete()
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
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
