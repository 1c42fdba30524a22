package podautoscaler

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// selectorIndex finds the autoscalers of a namespace whose targets have pods with
// given labels. It does not look at all of them: each is found by one label that its
// selector requires, that which the fewest others are found by.
type selectorIndex struct {
	selectors map[string]labels.Selector // by the names of the autoscalers
	required  map[string]label
	byLabel   map[label]sets.Set[string] // names; those without a required label are at the zero label
}

// label is a label of pods.
type label struct{ key, value string }

func newSelectorIndex() *selectorIndex {
	return &selectorIndex{selectors: map[string]labels.Selector{}, required: map[string]label{}, byLabel: map[label]sets.Set[string]{}}
}

// set records the selector of an autoscaler's target.
func (x *selectorIndex) set(name string, selector labels.Selector) {
	if have := x.selectors[name]; have != nil && have.String() == selector.String() {
		return
	}
	x.remove(name)
	var chosen label
	requirements, _ := selector.Requirements()
	for i := range requirements {
		r := &requirements[i]
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}
		if values := r.Values(); values.Len() == 1 {
			of := label{r.Key(), values.UnsortedList()[0]}
			if chosen == (label{}) || x.byLabel[of].Len() < x.byLabel[chosen].Len() {
				chosen = of
			}
		}
	}
	if x.byLabel[chosen] == nil {
		x.byLabel[chosen] = sets.New[string]()
	}
	x.byLabel[chosen].Insert(name)
	x.selectors[name], x.required[name] = selector, chosen
}

// remove forgets an autoscaler. It may be unknown.
func (x *selectorIndex) remove(name string) {
	chosen, known := x.required[name]
	if !known {
		return
	}
	if x.byLabel[chosen].Delete(name); x.byLabel[chosen].Len() == 0 {
		delete(x.byLabel, chosen)
	}
	delete(x.required, name)
	delete(x.selectors, name)
}

// matching adds the autoscalers whose selectors match the labels of a pod to found.
func (x *selectorIndex) matching(of labels.Set, found sets.Set[string]) {
	add := func(at label) {
		for name := range x.byLabel[at] {
			if x.selectors[name].Matches(of) {
				found.Insert(name)
			}
		}
	}
	add(label{})
	for key, value := range of {
		add(label{key, value})
	}
}
