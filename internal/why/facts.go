package why

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/podquery"
)

const (
	// maxEvents, logLines and logBytes bound what is read of a pod.
	maxEvents = 500
	logLines  = 5
	logBytes  = 16 << 10
	// logPatience is how long a kubelet may take to answer with a log.
	logPatience = 10 * time.Second
)

// facts holds what a diagnosis is based on besides the pod.
type facts struct {
	now    time.Time
	events []v1.Event // of the pod, newest first
	node   *v1.Node   // nil: unknown, or it does not exist
	noNode bool       // the node does not exist
	claims []claim
}

// claim is a PersistentVolumeClaim of the pod.
type claim struct {
	name   string
	object *v1.PersistentVolumeClaim // nil: it does not exist
	events []v1.Event                // newest first
	// isAnothers is set if the claim has the name of the claim of an ephemeral
	// volume of the pod, and was not made for the pod.
	isAnothers bool
}

// selectedNode returns the node that the scheduler has chosen for a claim that
// is not bound, or "".
func (c *claim) selectedNode() string {
	if c.object == nil || c.object.Status.Phase == v1.ClaimBound {
		return ""
	}
	return c.object.Annotations[volume.AnnSelectedNode]
}

// gather reads the facts. The report names what it cannot read.
func (r *Report) gather(ctx context.Context, kube kubernetes.Interface, pod *v1.Pod) *facts {
	f := &facts{now: time.Now(), events: r.eventsOf(ctx, kube, pod.Namespace, pod.UID)}
	if name := pod.Spec.NodeName; name != "" {
		node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			f.node = node
		case apierrors.IsNotFound(err):
			f.noNode = true
		default:
			r.NotRead = append(r.NotRead, err.Error())
		}
	}
	if pod.Status.Phase != v1.PodPending {
		return f
	}
	for i := range pod.Spec.Volumes {
		name, isEphemeral := podquery.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		c := claim{name: name}
		object, err := kube.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			c.object, c.events = object, r.eventsOf(ctx, kube, pod.Namespace, object.UID)
			c.isAnothers = isEphemeral && ephemeral.VolumeIsForPod(pod, object) != nil
		case !apierrors.IsNotFound(err):
			r.NotRead = append(r.NotRead, err.Error())
			continue
		}
		f.claims = append(f.claims, c)
	}
	return f
}

func (r *Report) eventsOf(ctx context.Context, kube kubernetes.Interface, namespace string, uid types.UID) []v1.Event {
	selector := fields.OneTermEqualSelector("involvedObject.uid", string(uid)).String()
	list, err := kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: maxEvents})
	if err != nil {
		if !slices.Contains(r.NotRead, err.Error()) {
			r.NotRead = append(r.NotRead, err.Error())
		}
		return nil
	}
	events := slices.DeleteFunc(list.Items, func(e v1.Event) bool { return e.InvolvedObject.UID != uid })
	slices.SortStableFunc(events, func(a, b v1.Event) int { return lastSeen(&b).Compare(lastSeen(&a)) })
	return events
}

// lastSeen is when an event was observed last, in either form of events.
func lastSeen(e *v1.Event) time.Time {
	at := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(at) {
			at = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

// readLogs fills in the logs of findings. A log that cannot be read is left
// out: its container may be gone.
func (r *Report) readLogs(ctx context.Context, kube kubernetes.Interface) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.log == nil {
			continue
		}
		lines, err := readLog(ctx, kube, r.Namespace, r.Name, f.log)
		if apierrors.IsForbidden(err) {
			r.NotRead = append(r.NotRead, err.Error())
		}
		f.Log = lines
	}
}

func readLog(ctx context.Context, kube kubernetes.Interface, namespace, name string, o *v1.PodLogOptions) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	o.TailLines, o.LimitBytes = ptr.To[int64](logLines), ptr.To[int64](logBytes)
	stream, err := kube.CoreV1().Pods(namespace).GetLogs(name, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, stream.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(stream, logBytes))
	if err != nil {
		return nil, err
	}
	for scanner := bufio.NewScanner(bytes.NewReader(raw)); scanner.Scan(); {
		if line := strings.TrimRight(scanner.Text(), " \r"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
