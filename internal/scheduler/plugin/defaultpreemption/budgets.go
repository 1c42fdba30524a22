package defaultpreemption

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	policylisters "k8s.io/client-go/listers/policy/v1"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// budgets counts what PodDisruptionBudgets allow. Victims count against a
// budget from the decision on; the disruption controller takes a while to
// write the new status. A nil *budgets knows none.
//
//	decision ──► eviction begins, the budget has version 7 ──► version 8
//	    the victim counts, whatever the version is    counts     in the status
type budgets struct {
	lister policylisters.PodDisruptionBudgetLister

	mu    sync.Mutex // guards taken
	taken map[types.NamespacedName]victimVersions
}

// victimVersions has the resourceVersion of a budget when the eviction of each victim
// began. It is "" for those whose eviction has not begun.
type victimVersions map[types.UID]string

func newBudgets(lister policylisters.PodDisruptionBudgetLister) *budgets {
	return &budgets{lister: lister, taken: map[types.NamespacedName]victimVersions{}}
}

// budgetView is the budgets as one search for victims sees them. Each namespace
// is listed once, and each selector parsed once.
type budgetView struct {
	*budgets    // nil: none
	byNamespace map[string][]selectingBudget
}

// mostRequired bounds the labels and values of a selector that is asked. A budget with more
// counts as one that selects all pods of its namespace: it would be asked about many pods,
// while all others wait to be scheduled.
const mostRequired = 1000

type selectingBudget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

func (b *budgets) view() *budgetView {
	return &budgetView{budgets: b, byNamespace: map[string][]selectingBudget{}}
}

// divide separates the pods whose eviction, in the given order, a disruption
// budget forbids.
func (b *budgetView) divide(pods []*framework.PodInfo) (violating, others []*framework.PodInfo) {
	if b.budgets == nil {
		return nil, pods
	}
	var allowed map[types.NamespacedName]int32 // made for the first budget: most pods have none
	others = make([]*framework.PodInfo, 0, len(pods))
	for _, pod := range pods {
		violates := false
		for _, budget := range b.of(pod.Pod) {
			if _, already := budget.Status.DisruptedPods[pod.Pod.Name]; already {
				continue
			}
			key := keyOf(budget)
			if allowed == nil {
				allowed = map[types.NamespacedName]int32{}
			}
			if _, counted := allowed[key]; !counted {
				allowed[key] = budget.Status.DisruptionsAllowed - b.count(budget)
			}
			allowed[key]--
			violates = violates || allowed[key] < 0
		}
		if violates {
			violating = append(violating, pod)
		} else {
			others = append(others, pod)
		}
	}
	return violating, others
}

// count returns how many victims the status of the budget does not know yet. The budget
// may be older than that of an eviction that began during the search.
func (b *budgets) count(budget *policyv1.PodDisruptionBudget) int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := keyOf(budget)
	for uid, version := range b.taken[key] {
		if version == "" {
			continue
		}
		if newer, err := resourceversion.CompareResourceVersion(budget.ResourceVersion, version); err != nil || newer > 0 {
			b.drop(key, uid)
		}
	}
	return int32(len(b.taken[key]))
}

// take counts a victim, whose eviction has not begun, against its budgets.
func (b *budgetView) take(pod *v1.Pod) {
	if b.budgets == nil {
		return
	}
	for _, budget := range b.of(pod) {
		b.mu.Lock()
		key := keyOf(budget)
		if b.taken[key] == nil {
			b.taken[key] = victimVersions{}
		}
		b.taken[key][pod.UID] = ""
		b.mu.Unlock()
	}
}

// evicting notes that the eviction of a victim begins: a later version of a budget
// knows of it. Budgets that are gone are forgotten.
func (b *budgets) evicting(pod *v1.Pod) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, victims := range b.taken {
		budget, err := b.lister.PodDisruptionBudgets(key.Namespace).Get(key.Name)
		if err != nil {
			delete(b.taken, key)
		} else if _, counts := victims[pod.UID]; counts {
			victims[pod.UID] = budget.ResourceVersion
		}
	}
}

// giveBack undoes take for a pod that was not evicted.
func (b *budgets) giveBack(pod *v1.Pod) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.taken {
		b.drop(key, pod.UID)
	}
}

// drop forgets a victim of a budget, with the lock held.
func (b *budgets) drop(key types.NamespacedName, victim types.UID) {
	if delete(b.taken[key], victim); len(b.taken[key]) == 0 {
		delete(b.taken, key)
	}
}

func keyOf(budget *policyv1.PodDisruptionBudget) types.NamespacedName {
	return types.NamespacedName{Namespace: budget.Namespace, Name: budget.Name}
}

// of returns the budgets that select the pod.
func (b *budgetView) of(pod *v1.Pod) (selecting []*policyv1.PodDisruptionBudget) {
	for _, budget := range b.in(pod.Namespace) {
		if budget.selector.Matches(labels.Set(pod.Labels)) {
			selecting = append(selecting, budget.PodDisruptionBudget)
		}
	}
	return selecting
}

// protects reports whether there is a budget in any of the namespaces.
func (b *budgetView) protects(namespaces []string) bool {
	return b.budgets != nil && slices.ContainsFunc(namespaces, func(namespace string) bool { return len(b.in(namespace)) > 0 })
}

// in returns the budgets of a namespace that select any pods: an empty selector and
// a very large one select all, none selects nothing.
func (b *budgetView) in(namespace string) []selectingBudget {
	known, ok := b.byNamespace[namespace]
	if ok {
		return known
	}
	list, err := b.lister.PodDisruptionBudgets(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	for _, budget := range list {
		switch of := budget.Spec.Selector; {
		case of == nil:
		case isLarge(of):
			known = append(known, selectingBudget{budget, labels.Everything()})
		default:
			if selector, err := metav1.LabelSelectorAsSelector(of); err == nil {
				known = append(known, selectingBudget{budget, selector})
			}
		}
	}
	b.byNamespace[namespace] = known
	return known
}

// isLarge reports whether a selector has more labels and values than mostRequired.
func isLarge(s *metav1.LabelSelector) bool {
	n := len(s.MatchLabels) + len(s.MatchExpressions)
	for i := 0; i < len(s.MatchExpressions) && n <= mostRequired; i++ {
		n += len(s.MatchExpressions[i].Values)
	}
	return n > mostRequired
}
