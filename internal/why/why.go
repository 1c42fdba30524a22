// Package why says in plain sentences why a pod is in the state that it is in:
// why it is pending (by the scheduler's own plugins), not ready, restarted,
// evicted or still there.
//
//	API ──read──► facts ──diagnose──► findings ─┐
//	  └──► explain.Cluster ──► explain.Decision ┴──► Report ──► JSON, or WriteText
//
// It only reads. The report names what the user may not read.
package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/explain"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Options are the parameters of a report.
type Options struct {
	Kubernetes      kubernetes.Interface
	Namespace, Name string
	// Configuration is the scheduler's, and ConfigurationOf where it is from.
	Configuration   config.Configuration
	ConfigurationOf string
	// WhatIf are nodes and pods that replace those with the same names.
	WhatIf []runtime.Object
	// Scheduling asks for the decision about pods that have other problems, too.
	Scheduling bool
}

// Report is why a pod is in its state.
type Report struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Phase     v1.PodPhase `json:"phase"`
	Node      string      `json:"node,omitempty"`
	Ready     bool        `json:"ready"`
	// State is the state of the pod, such as "pending". Answer says why the pod is
	// in that state, in one sentence.
	State  string `json:"state"`
	Answer string `json:"answer"`
	// Findings begin with the one that decides.
	Findings []Finding `json:"findings,omitempty"`
	// WhatIf lists the changes that Scheduling assumes.
	WhatIf []string `json:"whatIf,omitempty"`
	// Scheduling is the decision that the scheduler would make in the cluster as
	// it is now, with the configuration of SchedulerConfiguration.
	Scheduling             *explain.Decision `json:"scheduling,omitempty"`
	SchedulerConfiguration string            `json:"schedulerConfiguration,omitempty"`
	// NotRead names what could not be read: the report may be incomplete.
	NotRead []string `json:"notRead,omitempty"`
}

// thePod is the subject of findings about the pod as a whole.
const thePod = "pod"

// Finding is something that explains the state of the pod.
type Finding struct {
	// Subject is a part of the pod or something that it needs, such as
	// "container app" or "node n1".
	Subject string `json:"subject"`
	// Reason is the API's, such as CrashLoopBackOff.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Past says that it is over, and the pod works.
	Past     bool     `json:"past,omitempty"`
	Remedies []string `json:"remedies,omitempty"`
	// Log are the last lines that a container wrote before it ended.
	Log []string `json:"log,omitempty"`

	brief string            // Message for the answer, if that is too long
	log   *v1.PodLogOptions // the log to read, or nil
}

// Pod reports about a pod.
func Pod(ctx context.Context, o Options) (*Report, error) {
	pod, err := o.Kubernetes.CoreV1().Pods(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	r := &Report{Namespace: pod.Namespace, Name: pod.Name, Phase: pod.Status.Phase, Node: pod.Spec.NodeName, Ready: podquery.IsReady(pod)}
	f := r.gather(ctx, o.Kubernetes, pod)
	r.Findings = diagnose(pod, f)
	r.readLogs(ctx, o.Kubernetes)
	waiting := pod.Spec.NodeName == "" && !podquery.IsFinished(pod)
	healthy := !slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.Past })
	if waiting || o.Scheduling || len(o.WhatIf) > 0 || healthy && !podquery.IsFinished(pod) {
		if err := r.decide(ctx, o, pod); err != nil {
			if len(o.WhatIf) > 0 || ctx.Err() != nil {
				return nil, err
			}
			r.NotRead = append(r.NotRead, "what the scheduler would decide: "+err.Error())
		}
	}
	if d := r.Scheduling; d != nil && len(d.Rejections) > 0 && d.Rejections[0].Plugin == explain.UnknownScheduler {
		r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Reason == notScheduled }) // that is why
	}
	r.State, r.Answer = r.conclude(pod, f.now)
	return r, nil
}

// decide asks the scheduler's plugins.
func (r *Report) decide(ctx context.Context, o Options, pod *v1.Pod) error {
	return supervise.Run(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		cluster, err := explain.Load(ctx, o.Kubernetes)
		if apierrors.IsForbidden(err) && len(o.WhatIf) == 0 {
			r.NotRead = append(r.NotRead, err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		if pod, err = r.replace(ctx, o, cluster, pod); err != nil {
			return err
		}
		e, err := explain.New(ctx, explain.Options{Kubernetes: o.Kubernetes, Configuration: o.Configuration, Cluster: cluster})
		if err != nil {
			return err
		}
		r.NotRead = append(append(r.NotRead, cluster.Refused...), e.Refused...)
		e.Expect(pod)
		r.Scheduling, err = e.Explain(ctx, pod)
		r.SchedulerConfiguration = o.ConfigurationOf
		return err
	})
}

// replace puts the objects of the what-if into the cluster, and returns the
// pod that is asked about.
func (r *Report) replace(ctx context.Context, o Options, cluster *explain.Cluster, pod *v1.Pod) (*v1.Pod, error) {
	if len(o.WhatIf) == 0 {
		return pod, nil
	}
	admission, err := explain.NewAdmission(ctx, o.Kubernetes, o.Namespace)
	if err != nil {
		return nil, err
	}
	for _, object := range o.WhatIf {
		edited, is := object.(*v1.Pod)
		if is {
			if err := admission.Admit(edited); err != nil {
				return nil, fmt.Errorf("--what-if: %w", err)
			}
		}
		if is && edited.Namespace == pod.Namespace && edited.Name == pod.Name {
			edited.UID, edited.Spec.NodeName = pod.UID, ""
			edited.Status = v1.PodStatus{
				Phase: v1.PodPending, NominatedNodeName: pod.Status.NominatedNodeName,
				ResourceClaimStatuses: pod.Status.ResourceClaimStatuses, ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
			}
			cluster.Pods = slices.DeleteFunc(cluster.Pods, func(p *v1.Pod) bool { return p.UID == pod.UID })
			pod = edited
			r.WhatIf = append(r.WhatIf, "the pod itself replaced")
			continue
		}
		done, err := cluster.Replace(object)
		if err != nil {
			return nil, fmt.Errorf("--what-if: %w", err)
		}
		r.WhatIf = append(r.WhatIf, done)
	}
	r.NotRead = append(r.NotRead, admission.Refused...)
	return pod, nil
}

// Some of the states.
const (
	pending  = "pending"
	failed   = "failed"
	finished = "finished"
)

// conclude returns the state and the answer.
func (r *Report) conclude(pod *v1.Pod, now time.Time) (state, answer string) {
	for _, f := range r.Findings {
		if !f.Past {
			if answer = cmp.Or(f.brief, f.Message); f.Subject != thePod {
				answer = f.Subject + ": " + answer
			}
			break
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return "being deleted", answer
	case pod.Status.Phase == v1.PodSucceeded:
		return finished, "all its containers ended with success"
	case pod.Status.Phase == v1.PodFailed:
		return failed, answer
	case pod.Spec.NodeName == "":
		return pending, r.whyPending(pod, answer)
	case r.Ready && answer == "":
		c := podquery.Condition(&pod.Status, v1.PodReady)
		return "ready", fmt.Sprintf("it has been ready on node %s for %s", pod.Spec.NodeName, lasting(c.LastTransitionTime, now))
	case answer == "" && pod.Status.Phase == v1.PodPending:
		return "starting", "nothing is in its way; its containers are being started on node " + pod.Spec.NodeName
	case answer == "":
		return "not ready", "its status gives no reason"
	}
	return "not ready", answer
}

// whyPending is why a pod has no node. answer is of the findings.
func (r *Report) whyPending(pod *v1.Pod, answer string) string {
	d := r.Scheduling
	switch {
	case d == nil:
		if c := podquery.Condition(&pod.Status, v1.PodScheduled); c != nil && c.Message != "" {
			return "the scheduler says: " + c.Message
		}
		return answer
	case len(r.WhatIf) > 0:
		return "with the change " + d.Answer()
	case d.Node == "" && d.Preemption != nil && pod.Status.NominatedNodeName == d.Preemption.Node:
		return fmt.Sprintf("%s, and room is being made for it on node %s", d.Answer(), d.Preemption.Node)
	case d.Node == "" && pod.Status.NominatedNodeName != "":
		return fmt.Sprintf("%s yet; room is being made for it on node %s (status.nominatedNodeName)", d.Answer(), pod.Status.NominatedNodeName)
	case d.Node == "" || answer == "" && podquery.Condition(&pod.Status, v1.PodScheduled) == nil:
		return d.Answer()
	case answer != "":
		return answer
	}
	return "nothing is in its way any more, and the scheduler will try again: " + d.Answer()
}

// ago says how long ago a time was.
func ago(at metav1.Time, now time.Time) string {
	if now.Sub(at.Time) < time.Second {
		return "a moment ago"
	}
	return lasting(at, now) + " ago"
}

// lasting is the time since at, for people.
func lasting(at metav1.Time, now time.Time) string {
	return duration.HumanDuration(now.Sub(at.Time))
}

// maxMessage bounds a message of the API in a finding, in bytes.
const maxMessage = 1000

// oneLine is a message without line breaks.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}
