package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// scaler creates a Deployment for each ConfigMap with the label scaler=yes. The
// number of replicas is the number of entries in the data. It records an event.
type scaler struct {
	client.Client
	recorder events.EventRecorder
}

func (r *scaler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cm := &corev1.ConfigMap{}
	if err := r.Get(ctx, request.NamespacedName, cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	want := deployment(cm.Namespace, cm.Name, int32(len(cm.Data)))
	d := &appsv1.Deployment{ObjectMeta: want.ObjectMeta}
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, d, func() error {
		d.Spec.Replicas = want.Spec.Replicas
		if d.CreationTimestamp.IsZero() {
			d.Spec.Selector, d.Spec.Template = want.Spec.Selector, want.Spec.Template
		}
		return controllerutil.SetControllerReference(cm, d, r.Scheme())
	})
	if err == nil && result != controllerutil.OperationResultNone {
		r.recorder.Eventf(cm, d, corev1.EventTypeNormal, "Scaled", "Scale", "The Deployment was %s", result)
	}
	return ctrl.Result{}, err
}

func TestManagerCache(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	mgr := newManager(t, manager.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}}})
	labelled := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()["scaler"] == "yes" })
	must(t, ctrl.NewControllerManagedBy(mgr).Named("scaler").
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).
		Owns(&appsv1.Deployment{}).
		Complete(&scaler{mgr.GetClient(), mgr.GetEventRecorder("scaler")}))
	must(t, mgr.GetFieldIndexer().IndexField(ctx, &appsv1.Deployment{}, "replicas", func(o client.Object) []string {
		return []string{fmt.Sprint(*o.(*appsv1.Deployment).Spec.Replicas)}
	}))
	start(t, mgr)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}

	cm := configMap(ns, "web", map[string]string{"one": "", "two": ""})
	cm.Labels = map[string]string{"scaler": "yes"}
	must(t, c.Create(ctx, cm))
	scaledTo := func(n string) {
		t.Helper()
		eventually(t, "a Deployment with "+n+" replicas in the cache's index", func(ctx context.Context) error {
			var list appsv1.DeploymentList
			err := mgr.GetClient().List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"replicas": n})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("%d Deployments", len(list.Items))
			}
			return err
		})
	}
	scaledTo("2")

	cm.Data["three"] = ""
	must(t, c.Update(ctx, cm))
	scaledTo("3")

	must(t, c.Patch(ctx, deployment(ns, "web", 0), client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"replicas":7}}`))))
	scaledTo("3")

	eventually(t, "the controller's event", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := c.List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"reason": "Scaled"}); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == cm.UID && e.Related != nil && e.ReportingController == "scaler" {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(list.Items))
	})
	must(t, c.Delete(ctx, cm, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	eventually(t, "the deletion of the Deployment with its owner", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(cm), &appsv1.Deployment{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("still exists: %v", err)
		}
		return nil
	})
}

// elected returns a manager that competes for a lease in the namespace. The
// channel is closed once it is the leader.
func elected(t *testing.T, namespace string) manager.Manager {
	return newManager(t, manager.Options{
		LeaderElection:                true,
		LeaderElectionID:              "leader",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(15 * time.Second),
		RenewDeadline:                 ptr.To(10 * time.Second),
		RetryPeriod:                   ptr.To(200 * time.Millisecond),
	})
}

func TestLeaderElection(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c, nil)
	key := client.ObjectKey{Namespace: ns, Name: "leader"}
	transitions := func(n int32) func(context.Context) error {
		return func(ctx context.Context) error {
			lease := &coordinationv1.Lease{}
			if err := c.Get(ctx, key, lease); err != nil {
				return err
			}
			if ptr.Deref(lease.Spec.LeaseTransitions, 0) < n || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
				return errors.New("the second manager is not the leader")
			}
			return nil
		}
	}

	first, second := elected(t, ns), elected(t, ns)
	stopFirst := start(t, first)
	<-first.Elected()
	must(t, transitions(0)(ctx))
	start(t, second)
	eventually(t, "the second manager's cache", func(context.Context) error {
		select {
		case <-second.Elected():
			return errors.New("two leaders")
		default:
			return nil
		}
	})
	stopFirst()
	select {
	case <-second.Elected():
	case <-time.After(deadline):
		t.Fatal("the second manager did not take over")
	}
	eventually(t, "one transition in the Lease", transitions(1))
}
