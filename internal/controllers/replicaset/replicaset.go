// Package replicaset is the ReplicaSet controller. It maintains the number of pods of
// ReplicaSets and, for package replication, of ReplicationControllers.
package replicaset

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, skips := 5, workload.NewSkips("replicaset_controller", "ReplicaSet")
	return controller.Descriptor{
		Name:           "replicaset-controller",
		Aliases:        []string{"replicaset"},
		ServiceAccount: "replicaset-controller",
		EventSource:    "replicaset-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-replicaset-syncs", "replica sets"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, skips) },
	}
}

func newController(env *controller.Env, workers int, skips *prometheus.CounterVec) (controller.Controller, error) {
	informer := env.Client.Informers.Apps().V1().ReplicaSets().Informer()
	if err := errors.Join(workload.IndexByController(env, informer), env.Expose(skips)); err != nil {
		return nil, err
	}
	kube := env.Client.Kubernetes.AppsV1()
	return New(env, Kind[*apps.ReplicaSet]{
		GroupVersionKind: apps.SchemeGroupVersion.WithKind("ReplicaSet"),
		Queue:            "replicaset",
		Workers:          workers,
		Informer:         informer,
		Client:           func(namespace string) workload.Client[*apps.ReplicaSet] { return kube.ReplicaSets(namespace) },
		View:             func(set *apps.ReplicaSet) *apps.ReplicaSet { return set },
		SetStatus:        func(set *apps.ReplicaSet, status apps.ReplicaSetStatus) { set.Status = status },
		Related: func(set *apps.ReplicaSet) []types.UID {
			related := []types.UID{set.UID}
			ref := metav1.GetControllerOfNoCopy(set)
			if ref == nil {
				return related
			}
			siblings, _ := workload.Controlled[*apps.ReplicaSet](informer, ref.UID)
			for _, s := range siblings {
				if s.UID != set.UID {
					related = append(related, s.UID)
				}
			}
			return related
		},
		CountsTerminating: true,
		Skips:             skips,
	})
}
