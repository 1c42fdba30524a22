package namespace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/kinds"
	"github.com/coracle-io/coracle/internal/supervise"
)

// atOnce bounds how many resources of a namespace are emptied at once.
const atOnce = 8

// remains is what is left in a namespace after everything was asked to go.
type remains struct {
	mu         sync.Mutex // guards all below while resources are emptied at once
	instances  map[string]int
	finalizers map[string]int
	failures   []error
}

func (r *remains) empty() bool { return len(r.instances) == 0 && len(r.failures) == 0 }

// empty asks for the deletion of all objects of some resources in a
// namespace and says what is left.
func (c *namespaces) empty(ctx context.Context, namespace string, what []kinds.Kind) *remains {
	left := &remains{instances: map[string]int{}, finalizers: map[string]int{}}
	group, ctx := supervise.Together(ctx)
	group.SetLimit(atOnce)
	for _, kind := range what {
		group.Go(func() error {
			if err := c.emptyOne(ctx, namespace, kind, left); err != nil {
				left.mu.Lock()
				defer left.mu.Unlock()
				left.failures = append(left.failures, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil { // a panic
		left.failures = append(left.failures, err)
	}
	return left
}

func (c *namespaces) emptyOne(ctx context.Context, namespace string, kind kinds.Kind, left *remains) error {
	resource := c.metadata.Resource(kind.Resource).Namespace(namespace)
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	var deleteErr error
	if kind.Can("deletecollection") {
		deleteErr = resource.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	if !kind.Can("list") {
		return gone(deleteErr)
	}
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(gone(deleteErr), gone(err))
	}
	if !kind.Can("deletecollection") || apierrors.IsMethodNotSupported(deleteErr) {
		deleteErr = nil
		for _, item := range list.Items {
			deleteErr = errors.Join(deleteErr, gone(resource.Delete(ctx, item.Name, options)))
		}
		if list, err = resource.List(ctx, metav1.ListOptions{}); err != nil {
			return errors.Join(deleteErr, gone(err))
		}
	}
	if len(list.Items) > 0 {
		left.mu.Lock()
		defer left.mu.Unlock()
		left.instances[kind.Resource.Resource+"."+kind.Resource.Group] = len(list.Items)
		for _, item := range list.Items {
			for _, f := range item.Finalizers {
				left.finalizers[f]++
			}
		}
	}
	return gone(deleteErr)
}

// gone drops the errors of resources that are not there any longer.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}

// conditions puts into words what became of a namespace's content.
func conditions(discoveryErr error, left *remains) []v1.NamespaceCondition {
	out := []v1.NamespaceCondition{
		{Type: v1.NamespaceDeletionDiscoveryFailure, Status: v1.ConditionFalse, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
		{Type: v1.NamespaceDeletionGVParsingFailure, Status: v1.ConditionFalse, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
		{Type: v1.NamespaceDeletionContentFailure, Status: v1.ConditionFalse, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
		{Type: v1.NamespaceContentRemaining, Status: v1.ConditionFalse, Reason: "ContentRemoved", Message: "All content successfully removed"},
		{Type: v1.NamespaceFinalizersRemaining, Status: v1.ConditionFalse, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
	}
	fail := func(i int, reason, message string) {
		out[i].Status, out[i].Reason, out[i].Message = v1.ConditionTrue, reason, message
	}
	if discoveryErr != nil {
		fail(0, "DiscoveryFailed", "Discovery failed for some groups, 1 failing: "+discoveryErr.Error())
	}
	if len(left.failures) > 0 {
		fail(2, "ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %v", len(left.failures), errors.Join(left.failures...)))
	}
	if len(left.instances) > 0 {
		fail(3, "SomeResourcesRemain", "Some resources are remaining: "+describe(left.instances, "%s has %d resource instances"))
	}
	if len(left.finalizers) > 0 {
		fail(4, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+describe(left.finalizers, "%s in %d resource instances"))
	}
	return out
}

func describe(counts map[string]int, format string) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf(format, name, counts[name]))
	}
	return strings.Join(words, ", ")
}

// merge puts conditions into a status and reports whether that changed
// anything but times.
func merge(status *v1.NamespaceStatus, conditions []v1.NamespaceCondition, now time.Time) bool {
	changed := false
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(now)
		at := slices.IndexFunc(status.Conditions, func(have v1.NamespaceCondition) bool { return have.Type == c.Type })
		switch {
		case at < 0:
			status.Conditions = append(status.Conditions, c)
			changed = true
		case status.Conditions[at].Status != c.Status || status.Conditions[at].Reason != c.Reason || status.Conditions[at].Message != c.Message:
			if status.Conditions[at].Status == c.Status {
				c.LastTransitionTime = status.Conditions[at].LastTransitionTime
			}
			status.Conditions[at] = c
			changed = true
		}
	}
	return changed
}
