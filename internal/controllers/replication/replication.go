// Package replication is the controller of ReplicationControllers. It is the ReplicaSet
// controller with another kind.
package replication

import (
	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 5
	return controller.Descriptor{
		Name:           "replicationcontroller-controller",
		Aliases:        []string{"replicationcontroller"},
		ServiceAccount: "replication-controller",
		EventSource:    "replication-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-rc-syncs", "replication controllers"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

func newController(env *controller.Env, workers int) (controller.Controller, error) {
	kube := env.Client.Kubernetes.CoreV1()
	return replicaset.New(env, replicaset.Kind[*v1.ReplicationController]{
		GroupVersionKind: v1.SchemeGroupVersion.WithKind("ReplicationController"),
		Queue:            "replicationmanager",
		Workers:          workers,
		Informer:         env.Client.Informers.Core().V1().ReplicationControllers().Informer(),
		Client: func(namespace string) workload.Client[*v1.ReplicationController] {
			return kube.ReplicationControllers(namespace)
		},
		View:      view,
		SetStatus: func(rc *v1.ReplicationController, status apps.ReplicaSetStatus) { rc.Status = fromStatus(status) },
		Related:   func(set *apps.ReplicaSet) []types.UID { return []types.UID{set.UID} },
	})
}

// view converts a ReplicationController to a ReplicaSet, which shares memory with it.
func view(rc *v1.ReplicationController) *apps.ReplicaSet {
	set := &apps.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: apps.ReplicaSetSpec{
			Replicas:        rc.Spec.Replicas,
			MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector:        &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
		},
		Status: toStatus(rc.Status),
	}
	if rc.Spec.Template != nil {
		set.Spec.Template = *rc.Spec.Template
	}
	return set
}

func toStatus(s v1.ReplicationControllerStatus) apps.ReplicaSetStatus {
	out := apps.ReplicaSetStatus{
		Replicas:             s.Replicas,
		FullyLabeledReplicas: s.FullyLabeledReplicas,
		ReadyReplicas:        s.ReadyReplicas,
		AvailableReplicas:    s.AvailableReplicas,
		ObservedGeneration:   s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, apps.ReplicaSetCondition{
			Type: apps.ReplicaSetConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

func fromStatus(s apps.ReplicaSetStatus) v1.ReplicationControllerStatus {
	out := v1.ReplicationControllerStatus{
		Replicas:             s.Replicas,
		FullyLabeledReplicas: s.FullyLabeledReplicas,
		ReadyReplicas:        s.ReadyReplicas,
		AvailableReplicas:    s.AvailableReplicas,
		ObservedGeneration:   s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, v1.ReplicationControllerCondition{
			Type: v1.ReplicationControllerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}
