// The yardstick of bench/runtime_bench.py: the same work done with client-go. Prints one JSON object.
//
//	goinformer -kubeconfig FILE -do sync    -content json|protobuf
//	goinformer -kubeconfig FILE -do events  -since RESOURCE_VERSION -count N
//	goinformer -kubeconfig FILE -do get     -count N -inflight M
//	goinformer -kubeconfig FILE -do create  -count N -inflight M -prefix NAME
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type result map[string]any

var (
	kubeconfig = flag.String("kubeconfig", "", "how to reach the server")
	do         = flag.String("do", "sync", "sync, events, get or create")
	content    = flag.String("content", "json", "json, protobuf, or protobuf-only: nothing else is accepted")
	namespace  = flag.String("namespace", "bench", "where the objects are")
	since      = flag.String("since", "", "events: the resourceVersion to watch from")
	count      = flag.Int("count", 1000, "how many events or requests")
	inflight   = flag.Int("inflight", 1, "how many requests at once")
	prefix     = flag.String("prefix", "go", "create: how the names begin")
)

func main() {
	flag.Parse()
	client, err := connect()
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var found result
	began := cpu()
	switch *do {
	case "sync":
		found, err = syncAll(ctx, client)
	case "events":
		found, err = takeEvents(ctx, client)
	case "get":
		found, err = request(ctx, func(int) error {
			_, err := client.CoreV1().ConfigMaps(*namespace).Get(ctx, "one", meta.GetOptions{})
			return err
		})
	case "create":
		found, err = request(ctx, func(number int) error {
			body := &v1.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("%s-%d", *prefix, number)}, Data: map[string]string{"key": "value"}}
			_, err := client.CoreV1().ConfigMaps(*namespace).Create(ctx, body, meta.CreateOptions{})
			return err
		})
	default:
		err = fmt.Errorf("unknown -do %s", *do)
	}
	if err != nil {
		log.Fatal(err)
	}
	found["cpu_seconds"] = cpu() - began
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func connect() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit of its own: by default 5 requests a second
	config.ContentType = "application/json"
	if *content != "json" {
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	if *content == "protobuf-only" {
		config.AcceptContentTypes = config.ContentType
	}
	return kubernetes.NewForConfig(config)
}

// syncAll runs a shared informer of all pods until its cache is filled.
func syncAll(ctx context.Context, client kubernetes.Interface) (result, error) {
	before := memory("VmRSS")
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*namespace))
	pods := factory.Core().V1().Pods().Informer()
	began := time.Now()
	factory.Start(ctx.Done())
	for !pods.HasSynced() {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		time.Sleep(time.Millisecond) // WaitForCacheSync looks only every 100 ms
	}
	seconds := time.Since(began).Seconds()
	settled := memory("VmRSS")
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	stored := len(pods.GetStore().List())
	return result{
		"seconds": seconds, "objects": stored, "heap": heap.HeapAlloc,
		"rss": settled - before, "peak": memory("VmHWM"),
	}, nil
}

// takeEvents runs an informer that has nothing and watches from an old version, until it was told of all events.
func takeEvents(ctx context.Context, client kubernetes.Interface) (result, error) {
	done := make(chan struct{})
	var told atomic.Int64
	tell := func() {
		if told.Add(1) == int64(*count) {
			close(done)
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, meta.ListOptions) (kruntime.Object, error) {
			return &v1.PodList{ListMeta: meta.ListMeta{ResourceVersion: *since}}, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options meta.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods(*namespace).Watch(ctx, options)
		},
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &v1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { tell() },
			UpdateFunc: func(any, any) { tell() },
		},
	})
	began := time.Now()
	go informer.RunWithContext(ctx)
	select {
	case <-done:
		seconds := time.Since(began).Seconds()
		return result{"seconds": seconds, "per_second": float64(*count) / seconds}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%d of %d events came: %w", told.Load(), *count, ctx.Err())
	}
}

// request carries out numbered requests, a few at once.
func request(ctx context.Context, one func(int) error) (result, error) {
	if err := one(-1); err != nil { // connects
		return nil, err
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, *inflight)
	began := time.Now()
	for range *inflight {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for number := next.Add(1); number <= int64(*count); number = next.Add(1) {
				if err := one(int(number)); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	workers.Wait()
	seconds := time.Since(began).Seconds()
	select {
	case err := <-failed:
		return nil, err
	default:
		return result{"seconds": seconds, "per_second": float64(*count) / seconds}, nil
	}
}

// memory gives a line of /proc/self/status in bytes; 0 where there is none.
func memory(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kilobytes, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kilobytes * 1024
		}
	}
	return 0
}

func cpu() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
