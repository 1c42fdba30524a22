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
	"k8s.io/client-go/discovery"

	"github.com/coracle-io/coracle/internal/controller/kinds"
	"github.com/coracle-io/coracle/internal/supervise"
)

// parallelDeletions is the number of resources of a namespace that are deleted
// concurrently.
const parallelDeletions = 8

// remaining describes what is left in a namespace after its content was deleted.
type remaining struct {
	mu         sync.Mutex     // guards the following during deleteAll
	instances  map[string]int // by resource
	finalizers map[string]int
	failures   []error
}

func (r *remaining) empty() bool { return len(r.instances) == 0 && len(r.failures) == 0 }

// add counts objects of a resource.
func (r *remaining) add(kind kinds.Kind, objects []metav1.PartialObjectMetadata) {
	if len(objects) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances[kind.Resource.Resource+"."+kind.Resource.Group] = len(objects)
	for i := range objects {
		for _, f := range objects[i].Finalizers {
			r.finalizers[f]++
		}
	}
}

// deleteAll deletes all objects of some resources in a namespace and returns what
// remains. If it does so again, it asks only for resources of which an object is not being
// deleted.
func (c *namespaces) deleteAll(ctx context.Context, namespace string, resources []kinds.Kind, again bool) *remaining {
	left := &remaining{instances: map[string]int{}, finalizers: map[string]int{}}
	group, ctx := supervise.WithContext(ctx)
	group.SetLimit(parallelDeletions)
	for _, kind := range resources {
		group.Go(func() error {
			if again && c.areBeingDeleted(ctx, namespace, kind, left) {
				return nil
			}
			if err := c.deleteResource(ctx, namespace, kind, left); err != nil {
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

// areBeingDeleted reports whether all objects of one resource are being deleted, and then
// adds them to left. Thousands of pods take their time, and would be asked for again and
// again.
func (c *namespaces) areBeingDeleted(ctx context.Context, namespace string, kind kinds.Kind, left *remaining) bool {
	list, err := c.metadata.Resource(kind.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }) {
		return false
	}
	left.add(kind, list.Items)
	return true
}

// deleteResource deletes all objects of one resource and adds what remains to left.
func (c *namespaces) deleteResource(ctx context.Context, namespace string, kind kinds.Kind, left *remaining) error {
	resource := c.metadata.Resource(kind.Resource).Namespace(namespace)
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	var deleteErr error
	if kind.SupportsAll("deletecollection") {
		deleteErr = resource.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	if !kind.SupportsAll("list") {
		return ignoreNotServed(deleteErr)
	}
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(ignoreNotServed(deleteErr), ignoreNotServed(err))
	}
	if !kind.SupportsAll("deletecollection") || apierrors.IsMethodNotSupported(deleteErr) {
		deleteErr = nil
		for _, item := range list.Items {
			deleteErr = errors.Join(deleteErr, ignoreNotServed(resource.Delete(ctx, item.Name, options)))
		}
		if list, err = resource.List(ctx, metav1.ListOptions{}); err != nil {
			return errors.Join(deleteErr, ignoreNotServed(err))
		}
	}
	left.add(kind, list.Items)
	return ignoreNotServed(deleteErr)
}

// ignoreNotServed returns nil for errors of objects that do not exist and of resources
// that are not served any more.
func ignoreNotServed(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}

// conditions returns the conditions that describe the remaining content.
func conditions(discoveryErr error, left *remaining) []v1.NamespaceCondition {
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
		message := discoveryErr.Error()
		if groups := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(discoveryErr, &groups) {
			message = fmt.Sprintf("Discovery failed for some groups, %d failing: %s", len(groups.Groups), message)
		}
		fail(0, "DiscoveryFailed", message)
	}
	if len(left.failures) > 0 {
		var messages []string
		for _, err := range left.failures {
			messages = append(messages, err.Error())
		}
		slices.Sort(messages) // else the condition would change with the order in which resources fail
		fail(2, "ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(messages), strings.Join(messages, ", ")))
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

// setConditions sets conditions in a status and reports whether anything but times has
// changed.
func setConditions(status *v1.NamespaceStatus, conditions []v1.NamespaceCondition, now time.Time) bool {
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
