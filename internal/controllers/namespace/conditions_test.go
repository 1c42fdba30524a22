package namespace

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clienttesting "k8s.io/client-go/testing"
)

// fault is a failure of the cluster. The returned function ends it.
type fault func(w *cluster) (repair func())

func discoveryFails(err error) fault {
	return func(w *cluster) func() {
		broken := true
		w.Fake.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !broken {
				return false, nil, nil
			}
			return true, nil, err
		})
		all := w.Fake.Resources
		if discovery.IsGroupDiscoveryFailedError(err) {
			w.Fake.Resources = all[:1] // without boats
		}
		return func() { broken, w.Fake.Resources = false, all }
	}
}

// heldObjects adds objects with finalizers.
func heldObjects(w *cluster) func() {
	for _, o := range []struct {
		resource schema.GroupVersionResource
		kind     string
	}{{configMaps, "ConfigMap"}, {secrets, "Secret"}} {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "h-held", Finalizers: []string{held}}}
		object.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(o.kind))
		if err := w.objects.Tracker().Add(object); err != nil {
			w.t.Fatal(err)
		}
	}
	return func() { w.end(configMaps, "h-held"); w.end(secrets, "h-held") }
}

func deletionFails(w *cluster) func() {
	w.fail["secrets"] = apierrors.NewForbidden(secrets.GroupResource(), "", errors.New("no"))
	return func() { delete(w.fail, "secrets") }
}

// If content remains, the conditions say why, everything else is deleted, and the
// namespace is finalized at most a minute after the fault has been repaired.
func TestConditions(t *testing.T) {
	for _, test := range []struct {
		about string
		fault fault
		gone  []string
		want  string
	}{
		{
			"finalizers", heldObjects,
			[]string{"boats/x", "configmaps/c", "pods/a", "secrets/s"},
			`NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 2 resource instances`,
		},
		{
			"a deletion that fails", deletionFails,
			[]string{"boats/x", "configmaps/c", "pods/a"},
			`NamespaceDeletionContentFailure ContentDeletionFailed: Failed to delete all resource types, 1 remaining: secrets is forbidden: no
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: secrets. has 1 resource instances`,
		},
		{
			"two deletions that fail",
			func(w *cluster) func() {
				w.fail["configmaps"] = apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("no"))
				repair := deletionFails(w)
				return func() { delete(w.fail, "configmaps"); repair() }
			},
			[]string{"boats/x", "pods/a"},
			`NamespaceDeletionContentFailure ContentDeletionFailed: Failed to delete all resource types, 2 remaining: configmaps is forbidden: no, secrets is forbidden: no
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances`,
		},
		{
			"a group that is not discovered",
			discoveryFails(&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{boats: errors.New("the server is currently unable to handle the request")}}),
			[]string{"configmaps/c", "pods/a", "secrets/s"},
			`NamespaceDeletionDiscoveryFailure DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: example.com/v1: the server is currently unable to handle the request`,
		},
		{
			"two groups that are not discovered",
			discoveryFails(&discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
				boats: errors.New("no"), {Group: "example.org", Version: "v1"}: errors.New("no"),
			}}),
			[]string{"configmaps/c", "pods/a", "secrets/s"},
			`NamespaceDeletionDiscoveryFailure DiscoveryFailed: Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: example.com/v1: no, example.org/v1: no`,
		},
		{
			"discovery fails", discoveryFails(errors.New("out of order")), nil,
			`NamespaceDeletionDiscoveryFailure DiscoveryFailed: out of order`,
		},
	} {
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t, namespace("kubernetes", "example.com/other"), "Pod/a", "ConfigMap/c", "Secret/s", "Boat/x")
				repair := test.fault(w)
				w.run()
				w.wantGone("at first", test.gone...)
				w.want("at first", "Terminating [kubernetes example.com/other]\n"+test.want)
				before := w.namespace()
				after(time.Hour)
				w.wantGone("an hour later", test.gone...)
				if now := w.namespace(); now.ResourceVersion != before.ResourceVersion {
					t.Error("the namespace was written without a change")
				}
				asked := len(w.asked)
				after(10 * time.Minute)
				if tries := len(w.asked) - asked; test.gone != nil && (tries < 9 || tries > 100) {
					t.Errorf("%d deletions in ten minutes", tries)
				}
				repair()
				after(time.Minute)
				w.want("repaired", "Terminating [example.com/other]")
				if reasons := reasons(w.namespace()); reasons != "ResourcesDiscovered ParsedGroupVersions ContentDeleted ContentRemoved ContentHasNoFinalizers" {
					t.Errorf("repaired: %s", reasons)
				}
			})
		})
	}
}

func reasons(ns *v1.Namespace) string {
	var out []string
	for _, c := range ns.Status.Conditions {
		out = append(out, c.Reason)
	}
	return strings.Join(out, " ")
}

// Conditions of others stay, and all keep their places.
func TestOrderOfConditions(t *testing.T) {
	failed := conditions(errors.New("no"), &remaining{})
	for want, status := range map[string]v1.NamespaceStatus{
		"Other=True NamespaceDeletionDiscoveryFailure=True NamespaceDeletionGroupVersionParsingFailure=False NamespaceDeletionContentFailure=False NamespaceContentRemaining=False NamespaceFinalizersRemaining=False": {
			Conditions: []v1.NamespaceCondition{{Type: "Other", Status: v1.ConditionTrue}},
		},
		"NamespaceDeletionGroupVersionParsingFailure=False NamespaceDeletionDiscoveryFailure=True NamespaceDeletionContentFailure=False NamespaceContentRemaining=False NamespaceFinalizersRemaining=False": {
			Conditions: []v1.NamespaceCondition{
				{Type: v1.NamespaceDeletionGVParsingFailure, Status: v1.ConditionTrue},
				{Type: v1.NamespaceDeletionDiscoveryFailure, Status: v1.ConditionFalse},
			},
		},
	} {
		changed := setConditions(&status, failed, time.Now())
		var got []string
		for _, c := range status.Conditions {
			got = append(got, string(c.Type)+"="+string(c.Status))
		}
		if text := strings.Join(got, " "); text != want || !changed {
			t.Errorf("conditions %s, want %s", text, want)
		}
		if setConditions(&status, failed, time.Now()) {
			t.Error("the same conditions are a change")
		}
	}
}

// A condition keeps its transition time while only its message changes.
func TestTransitionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t, namespace("kubernetes"), "Secret/a-held", "Secret/b-held")
		w.run()
		since := func() time.Duration {
			for _, c := range w.namespace().Status.Conditions {
				if c.Type == v1.NamespaceContentRemaining {
					return time.Since(c.LastTransitionTime.Time)
				}
			}
			return -1
		}
		after(time.Hour)
		w.end(secrets, "a-held")
		after(time.Minute)
		w.want("with one left", `Terminating [kubernetes]
NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: secrets. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances`)
		if got := since(); got != time.Hour+time.Minute {
			t.Errorf("remaining since %v", got)
		}
		w.end(secrets, "b-held")
		after(time.Minute)
		w.want("with none left", "Terminating []")
		if got := since(); got > time.Minute {
			t.Errorf("gone since %v", got)
		}
	})
}
