// Package replicaset keeps the pods of ReplicaSets.
package replicaset

import (
	"context"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/own"
	"github.com/coracle-io/coracle/internal/controller/replicas"
)

// Descriptor describes the controller.
var Descriptor = controller.Descriptor{
	Name:           "replicaset-controller",
	Aliases:        []string{"replicaset"},
	ServiceAccount: "replicaset-controller",
	EventSource:    "replicaset-controller",
	New:            New,
}

// New builds the controller.
func New(env *controller.Env) (controller.Controller, error) {
	informer := env.Client.Informers.Apps().V1().ReplicaSets().Informer()
	if err := env.Index(informer, own.ByController, own.ControllerKeys); err != nil {
		return nil, err
	}
	kube := env.Client.Kubernetes.AppsV1()
	return replicas.New(env, replicas.Kind{
		Queue:            "replicaset",
		GroupVersionKind: apps.SchemeGroupVersion.WithKind("ReplicaSet"),
		Informer:         informer,
		View:             func(o any) *apps.ReplicaSet { return o.(*apps.ReplicaSet) },
		Fresh: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return kube.ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		WriteStatus: func(ctx context.Context, o any, status apps.ReplicaSetStatus) error {
			set := *o.(*apps.ReplicaSet)
			set.Status = status
			_, err := kube.ReplicaSets(set.Namespace).UpdateStatus(ctx, &set, metav1.UpdateOptions{})
			return err
		},
		Related: func(set *apps.ReplicaSet) []types.UID {
			related := []types.UID{set.UID}
			ref := metav1.GetControllerOfNoCopy(set)
			if ref == nil {
				return related
			}
			siblings, _ := informer.GetIndexer().ByIndex(own.ByController, string(ref.UID))
			for _, o := range siblings {
				if uid := o.(*apps.ReplicaSet).UID; uid != set.UID {
					related = append(related, uid)
				}
			}
			return related
		},
		CountsTerminating: true,
		Workers:           env.Options.ConcurrentReplicaSetSyncs,
	})
}
