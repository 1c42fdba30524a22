package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
	"github.com/coracle-io/coracle/internal/scheduler/podgroup"
	"github.com/coracle-io/coracle/internal/scheduler/profile"
	"github.com/coracle-io/coracle/internal/scheduler/queue"
)

// Options are the options of an Explainer.
type Options struct {
	// Kubernetes reads what plugins look at besides nodes and pods.
	Kubernetes    kubernetes.Interface
	Configuration config.Configuration
	Cluster       *Cluster
}

// Explainer decides about pods in a cluster that does not change. It must not
// be used concurrently.
type Explainer struct {
	profiles  map[string]*profile.Profile
	checkAll  bool
	snapshot  *framework.Snapshot
	nominator *queue.Nominator
	groups    podGroups
	informers *client.Informers // of what plugins look at
	features  *feature.Set
	// Refused names resources that plugins look at and that the user may not
	// list, and extenders, which could change the answer.
	Refused []string
}

// listPatience is how long resources that plugins look at may take to be listed.
const listPatience = 30 * time.Second

// New makes the plugins and reads what they look at. ctx belongs to a
// supervise.Run; what New starts ends with it.
func New(ctx context.Context, o Options) (*Explainer, error) {
	e := &Explainer{
		profiles: map[string]*profile.Profile{}, checkAll: o.Configuration.AlwaysCheckAllPredicates,
		snapshot: framework.NewSnapshot(), nominator: queue.NewNominator(), features: o.Configuration.Features,
	}
	e.groups = podGroups{podgroup.New(), e.snapshot}
	shared := map[string]any{}
	informers := client.NewInformers(o.Kubernetes)
	e.informers = informers
	for _, one := range o.Configuration.Served() {
		p, err := profile.New(ctx, profile.Options{
			Registry: all.Registry(), Default: all.Default(o.Configuration.Features), Config: one, AlwaysCheckAllPredicates: o.Configuration.AlwaysCheckAllPredicates,
			Handle: e.newHandle(o, informers, shared),
		})
		if err != nil {
			return nil, err
		}
		e.profiles[one.SchedulerName] = p
	}
	for _, ns := range o.Cluster.Namespaces {
		e.snapshot.SetNamespace(ns.Name, ns.Labels)
	}
	for _, node := range o.Cluster.Nodes {
		e.snapshot.SetNode(node)
	}
	for _, pod := range o.Cluster.Pods {
		e.addPod(pod)
	}
	var err error
	e.Refused, err = informers.Fill(ctx, listPatience)
	for _, x := range o.Configuration.Extenders {
		e.Refused = append(e.Refused, fmt.Sprintf("extender %s: extenders are not asked", x.URLPrefix))
	}
	return e, err
}

// newHandle returns what the plugins of a profile get. profile.New completes it.
func (e *Explainer) newHandle(o Options, informers informers.SharedInformerFactory, shared map[string]any) *framework.Handle {
	return &framework.Handle{
		Client: o.Kubernetes, Informers: informers, Recorder: silent{}, Nominator: e.nominator, Queue: silent{},
		PodGroups: e.groups, Shared: shared,
		Features: o.Configuration.Features,
	}
}

// silent is a recorder that records nothing and a queue without pods.
type silent struct{}

// Eventf implements framework.EventRecorder.
func (silent) Eventf(*v1.Pod, *v1.Pod, string, string, string, string, ...any) {}

// Activate implements framework.PodActivator.
func (silent) Activate(...*v1.Pod) {}

// podGroups implements framework.PodGroups.
type podGroups struct {
	*podgroup.Groups
	snapshot *framework.Snapshot
}

// NumPlaced implements framework.PodGroups.
func (g podGroups) NumPlaced(group types.NamespacedName) (placed int) {
	for _, member := range g.Members(group) {
		if slices.ContainsFunc(g.snapshot.Nodes(), func(n *framework.NodeInfo) bool { return g.snapshot.PodOn(n.Name, member.UID) != nil }) {
			placed++
		}
	}
	return placed
}

// Expect makes a pod that the cluster does not have yet a member of its pod
// group.
func (e *Explainer) Expect(pod *v1.Pod) { e.groups.Set(pod) }

func (e *Explainer) addPod(pod *v1.Pod) {
	if podquery.IsFinished(pod) {
		return
	}
	pod = framework.Visible(pod, e.features)
	e.groups.Set(pod)
	if pod.Spec.NodeName != "" {
		e.snapshot.AddPod(framework.NewPodInfo(pod), pod.Spec.NodeName)
	} else if pod.Status.NominatedNodeName != "" {
		e.nominator.AddNominatedPod(framework.NewPodInfo(pod), "")
	}
}

// place puts the pod of a decision on its node, where later decisions find it
// and the volumes and devices that it takes. Without them it gets no node. waits
// says that the scheduler would not bind it yet.
func (e *Explainer) place(ctx context.Context, a *attempt) (waits bool) {
	node := a.decision.Node
	if status := a.profile.RunReservePlugins(ctx, a.state, a.pod, node); !status.IsSuccess() {
		a.profile.RunUnreservePlugins(ctx, a.state, a.pod, node)
		a.decision.Node, a.decision.Tied = "", nil
		a.fail(status, status.Plugin(), node)
		return false
	}
	placed := *a.pod.Pod
	placed.Spec.NodeName = node
	e.addPod(&placed)
	status := a.profile.RunPermitPlugins(ctx, a.state, a.pod, node)
	if !status.IsSuccess() && !status.IsWait() {
		e.takeBack(ctx, a)
		a.fail(status, status.Plugin(), node)
	}
	return status.IsWait()
}

// takeBack removes the pod of a decision from its node.
func (e *Explainer) takeBack(ctx context.Context, a *attempt) {
	node := a.decision.Node
	a.decision.Node, a.decision.Nominated, a.decision.Tied = "", false, nil
	if there := e.snapshot.PodOn(node, a.pod.Pod.UID); there != nil {
		e.snapshot.RemovePod(there, node)
	}
	e.groups.Set(a.pod.Pod)
	a.profile.RunUnreservePlugins(ctx, a.state, a.pod, node)
}

// takeBackWaiting removes from their nodes the pods that still wait for a
// Permit plugin, such as the pods of a gang that does not get all its nodes. It
// returns the number of these pods.
func (e *Explainer) takeBackWaiting(ctx context.Context, attempts []*attempt) (taken int) {
	var waiting []*attempt
	var why []Rejection
	for _, a := range attempts {
		w := a.profile.Waiting.Get(a.pod.Pod.UID)
		if w == nil || len(w.PendingPlugins()) == 0 {
			continue
		}
		waiting = append(waiting, a)
		plugin := w.PendingPlugins()[0]
		why = append(why, newRejection(framework.NewStatus(framework.Wait, plugin, "waiting in Permit"), plugin, []framework.Obstacle{{Text: e.whyWaiting(a.pod.Pod, plugin)}}))
	}
	for i, a := range waiting {
		e.takeBack(ctx, a)
		a.decision.Rejections = append(a.decision.Rejections, why[i])
	}
	return len(waiting)
}

// whyWaiting says why a plugin makes a pod wait in Permit.
func (e *Explainer) whyWaiting(pod *v1.Pod, plugin string) string {
	group, ok := podgroup.Of(pod)
	if !ok {
		return fmt.Sprintf("plugin %s makes the pod wait", plugin)
	}
	return fmt.Sprintf("only %d of the %s of pod group %s would get a node, and its gang needs more", e.groups.NumPlaced(group), count(e.groups.Count(group), "pod"), group.Name)
}

// SchedulerNames are the names in the configuration.
func (e *Explainer) SchedulerNames() []string { return slices.Sorted(maps.Keys(e.profiles)) }

// Explain decides about a pod. For one that is on a node it decides where it
// would go if it were not there.
func (e *Explainer) Explain(ctx context.Context, pod *v1.Pod) (*Decision, error) {
	a, err := e.decide(ctx, pod)
	return a.decision, err
}

func (e *Explainer) decide(ctx context.Context, pod *v1.Pod) (*attempt, error) {
	if on := pod.Spec.NodeName; on != "" {
		unbound := *pod
		unbound.Spec.NodeName, unbound.Status.NominatedNodeName = "", ""
		if there := e.snapshot.PodOn(on, pod.UID); there != nil {
			e.snapshot.RemovePod(there, on)
			defer e.snapshot.AddPod(there, on)
		}
		pod = &unbound
	}
	pod = framework.Visible(pod, e.features)
	d := &Decision{Namespace: pod.Namespace, Name: pod.Name, SchedulerName: pod.Spec.SchedulerName, Nodes: []NodeDecision{}}
	a := &attempt{explainer: e, profile: e.profiles[pod.Spec.SchedulerName], pod: framework.NewPodInfo(pod), decision: d}
	if a.profile == nil {
		d.Rejections = []Rejection{e.unknownScheduler(pod.Spec.SchedulerName)}
		return a, nil
	}
	a.state = a.profile.NewCycleState()
	return a, a.run(ctx)
}

// UnknownScheduler stands for a plugin in the rejection of a pod whose
// schedulerName no profile has.
const UnknownScheduler = "schedulerName"

func (e *Explainer) unknownScheduler(name string) Rejection {
	obstacle := framework.Obstacle{Text: fmt.Sprintf("spec.schedulerName is %s, and the scheduler of this cluster schedules pods with schedulerName %s", name, strings.Join(e.SchedulerNames(), ", "))}
	for _, known := range e.SchedulerNames() {
		obstacle.Remedies = append(obstacle.Remedies, "recreate the pod with schedulerName "+known)
	}
	obstacle.Remedies = append(obstacle.Remedies, "run a scheduler named "+name)
	return Rejection{Plugin: UnknownScheduler, Reasons: []string{"no profile for the pod's schedulerName"}, Obstacles: []framework.Obstacle{obstacle}}
}

// attempt is one decision.
type attempt struct {
	explainer *Explainer
	profile   *profile.Profile
	state     *framework.CycleState
	pod       *framework.PodInfo
	decision  *Decision
	feasible  []*framework.NodeInfo
	statuses  *framework.NodeToStatus
	failed    bool // a plugin failed
}

func (a *attempt) run(ctx context.Context) error {
	for _, plugin := range a.profile.PreEnqueue() {
		if s := plugin.PreEnqueue(ctx, a.pod); !s.IsSuccess() {
			a.reject(s, plugin.Name())
		}
	}
	snapshot := a.explainer.snapshot
	if snapshot.NumNodes() == 0 {
		a.decision.Message = (&framework.FitError{}).Error()
		return nil
	}
	result, status := a.profile.RunPreFilterPlugins(ctx, a.state, a.pod, snapshot)
	if !status.IsSuccess() {
		if !status.IsRejected() {
			a.fail(status, status.Plugin(), "")
			return ctx.Err()
		}
		a.reject(status, status.Plugin())
		a.statuses = framework.NewNodeToStatus(status, 0)
		a.decision.Message = (&framework.FitError{NumAllNodes: snapshot.NumNodes(), PreFilterMsg: status.Message(), Nodes: a.statuses}).Error()
		a.preempt(ctx)
		return ctx.Err()
	}
	a.filter(ctx, result)
	switch {
	case len(a.feasible) > 0:
		a.score(ctx)
	case !a.failed:
		a.decision.Message = (&framework.FitError{NumAllNodes: snapshot.NumNodes(), Nodes: a.statuses}).Error()
		a.preempt(ctx)
	}
	a.sort()
	if len(a.feasible) > 0 && len(a.decision.Rejections) == 0 {
		a.choose()
	}
	return ctx.Err()
}

// fail notes that a plugin failed, on a node or for the pod as a whole: then
// the scheduler ends its attempt.
func (a *attempt) fail(status *framework.Status, plugin, node string) {
	if a.failed {
		return
	}
	a.failed = true
	if node != "" {
		node = " on node " + node
	}
	text := fmt.Sprintf("plugin %s failed%s: %v", plugin, node, status.AsError())
	a.decision.Message = text
	a.decision.Rejections = append(a.decision.Rejections, newRejection(status, plugin, []framework.Obstacle{{Text: text}}))
}

func (a *attempt) reject(status *framework.Status, plugin string) {
	a.decision.Rejections = append(a.decision.Rejections, newRejection(status, plugin, a.profile.ExplainPod(a.state, a.pod, plugin)))
}

// filter asks all filters about each node.
func (a *attempt) filter(ctx context.Context, result *framework.PreFilterResult) {
	nodes := a.explainer.snapshot.Nodes()
	var absent *framework.Status
	if result != nil {
		absent = result.Absent()
	}
	a.statuses = framework.NewNodeToStatus(absent, len(nodes))
	a.decision.Nodes = make([]NodeDecision, 0, len(nodes))
	for _, n := range nodes {
		var rejected *framework.Status
		leftOut := result != nil && !result.NodeNames[n.Name]
		d := NodeDecision{Name: n.Name, Feasible: !leftOut}
		for _, v := range a.profile.ExplainFilters(ctx, a.state, a.pod, n) {
			switch {
			case v.Status.IsSuccess():
				continue
			case !v.Status.IsRejected() && leftOut: // the scheduler does not ask there
				continue
			case !v.Status.IsRejected():
				a.fail(v.Status, v.Plugin, n.Name)
			case rejected == nil || a.explainer.checkAll:
				rejected = rejected.And(v.Status)
			}
			d.Feasible = false
			r := newRejection(v.Status, v.Plugin, v.Obstacles)
			r.Nominated = v.Nominated
			d.Rejections = append(d.Rejections, r)
		}
		switch {
		case leftOut: // the filters say why
			if len(d.Rejections) == 0 {
				d.Rejections = []Rejection{newRejection(absent, "", nil)}
			}
		case d.Feasible:
			a.feasible = append(a.feasible, n)
		case rejected != nil:
			a.statuses.Set(n.Name, rejected)
		}
		a.decision.Nodes = append(a.decision.Nodes, d)
	}
}

// score fills in the scores of the feasible nodes.
func (a *attempt) score(ctx context.Context) {
	scores, status := a.profile.ExplainScores(ctx, a.state, a.pod, a.explainer.snapshot, a.feasible)
	if !status.IsSuccess() {
		a.fail(status, status.Plugin(), "")
		return
	}
	i := 0
	for at := range a.decision.Nodes {
		d := &a.decision.Nodes[at]
		if !d.Feasible {
			continue
		}
		for _, of := range scores {
			s := Score{Plugin: of.Plugin, Score: of.Scores[i], Weight: of.Weight, Weighted: of.Scores[i] * of.Weight}
			d.Scores, d.Score = append(d.Scores, s), d.Score+s.Weighted
		}
		i++
	}
}

func (a *attempt) sort() {
	slices.SortStableFunc(a.decision.Nodes, func(x, y NodeDecision) int {
		switch {
		case x.Feasible && y.Feasible:
			return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.Name, y.Name))
		case x.Feasible:
			return -1
		case y.Feasible:
			return 1
		}
		return cmp.Or(cmp.Compare(x.obstacles(), y.obstacles()), cmp.Compare(x.Name, y.Name))
	})
}

// choose takes the nominated node if it is feasible, or else the best one.
func (a *attempt) choose() {
	d := a.decision
	if nominated := a.pod.Pod.Status.NominatedNodeName; nominated != "" {
		i := slices.IndexFunc(d.Nodes, func(n NodeDecision) bool { return n.Feasible && n.Name == nominated })
		if d.Nominated = i >= 0; d.Nominated {
			d.Node = nominated
			return
		}
	}
	d.Node = d.Nodes[0].Name
	for _, n := range d.Nodes {
		if n.Feasible && n.Score == d.Nodes[0].Score {
			d.Tied = append(d.Tied, n.Name)
		}
	}
	if len(d.Tied) == 1 {
		d.Tied = nil
	}
}

// preempt asks which pods would be evicted for the pod. A pod that is not in
// the queue evicts none.
func (a *attempt) preempt(ctx context.Context) {
	if slices.ContainsFunc(a.profile.PreEnqueue(), func(p framework.PreEnqueuePlugin) bool { return !p.PreEnqueue(ctx, a.pod).IsSuccess() }) {
		return
	}
	preemption, status := a.profile.DryRunPostFilter(ctx, a.state, a.pod, a.explainer.snapshot, a.statuses)
	if preemption == nil {
		a.decision.PreemptionMessage = status.Message()
		return
	}
	out := &Preemption{Node: preemption.NodeName, NumPDBViolations: preemption.NumPDBViolations}
	for _, v := range preemption.Victims {
		out.Victims = append(out.Victims, Victim{Namespace: v.Pod.Namespace, Name: v.Pod.Name, Priority: v.Priority})
	}
	a.decision.Preemption = out
}
