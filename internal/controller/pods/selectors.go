package pods

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// ByLabel is the name of the pod informer's index by namespace and label.
	ByLabel = "label"
	// BySelector is the name of the index of objects that select pods, such as
	// Services, by namespace and one label that the pods must have.
	BySelector = "selector"

	// mostKeys bounds the keys of an object in these indexes. A key takes 250 bytes, and a
	// label or a value of a selector may have ten: objects with more have that of anyLabelKey.
	mostKeys = 64
)

// labelKey is the key of a label of a namespace's objects in ByLabel and BySelector.
func labelKey(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// anyLabelKey is the key in BySelector of objects whose pods need no certain label, and in
// ByLabel of pods with more labels than mostKeys.
func anyLabelKey(namespace string) string { return namespace + "/" }

// LabelKeys is the index function of ByLabel.
func LabelKeys(o any) ([]string, error) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("cannot index a %T by its labels", o)
	}
	if len(p.Labels) > mostKeys {
		return []string{anyLabelKey(p.Namespace)}, nil
	}
	keys := make([]string, 0, len(p.Labels))
	for key, value := range p.Labels {
		keys = append(keys, labelKey(p.Namespace, key, value))
	}
	return keys, nil
}

// SelectorKeys returns the keys in BySelector of an object that selects pods of its namespace.
func SelectorKeys(namespace string, selector labels.Selector) []string {
	if keys := requiredLabels(namespace, selector); len(keys) > 0 {
		return keys
	}
	return []string{anyLabelKey(namespace)}
}

// requiredLabels returns keys of which each pod that a selector matches has exactly one, unless
// it has anyLabelKey, or none if the selector does not require a label with certain values, of
// which there are few. They are the same whatever the order of the requirements is, which is
// any for those of one label: an index must find again what it has added.
func requiredLabels(namespace string, selector labels.Selector) (keys []string) {
	if set, ok := selector.(labels.ValidatedSetSelector); ok { // it would have to make its requirements
		var least string
		for key, value := range set {
			if keys == nil || key < least {
				least, keys = key, []string{labelKey(namespace, key, value)}
			}
		}
		return keys
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		values := r.ValuesUnsorted()
		if len(values) > mostKeys || !slices.Contains([]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator()) {
			continue
		}
		var required []string
		for _, value := range values {
			required = append(required, labelKey(namespace, r.Key(), value))
		}
		slices.Sort(required)
		required = slices.Compact(required)
		if keys == nil || slices.Compare(required, keys) < 0 {
			keys = required
		}
	}
	return keys
}

// Selected returns the pods of a namespace that a selector matches. It examines those with
// a label that the selector requires, and those with very many labels, or all of the namespace
// if it requires none. The informer must have the index ByLabel.
func Selected(informer cache.SharedIndexInformer, namespace string, selector labels.Selector) ([]*v1.Pod, error) {
	keys := requiredLabels(namespace, selector)
	if len(keys) == 0 {
		return corelisters.NewPodLister(informer.GetIndexer()).Pods(namespace).List(selector)
	}
	var found []*v1.Pod
	lists := 0 // that have pods
	for _, key := range append(keys, anyLabelKey(namespace)) {
		labelled, err := indexed(informer, ByLabel, key)
		if err != nil {
			return nil, err
		}
		if len(labelled) > 0 {
			lists++
		}
		for _, p := range labelled {
			if selector.Matches(labels.Set(p.Labels)) {
				found = append(found, p)
			}
		}
	}
	if lists > 1 { // a label may have changed meanwhile from one value to another
		slices.SortFunc(found, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
		found = slices.CompactFunc(found, func(a, b *v1.Pod) bool { return a.Name == b.Name })
	}
	return found, nil
}

// MaySelect returns the objects T, such as *v1.Service, that may select a pod with these
// labels in a namespace, in any order: all of the namespace, if these are very many. The
// caller asks their selectors. The informer must have the index BySelector.
func MaySelect[T any](informer cache.SharedIndexInformer, namespace string, podLabels map[string]string) ([]T, error) {
	var found []T
	if len(podLabels) > mostKeys {
		err := cache.ListAllByNamespace(informer.GetIndexer(), namespace, labels.Everything(), func(o any) { found = append(found, o.(T)) })
		return found, err
	}
	keys := []string{anyLabelKey(namespace)}
	for key, value := range podLabels {
		keys = append(keys, labelKey(namespace, key, value))
	}
	for _, key := range keys {
		objects, err := informer.GetIndexer().ByIndex(BySelector, key)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			found = append(found, o.(T))
		}
	}
	return found, nil
}
