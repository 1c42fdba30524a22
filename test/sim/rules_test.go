package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coracle-io/coracle/internal/podquery"
)

// bounds holds the most pods and the least available pods that a Deployment
// allows.
type bounds struct{ most, least int }

// rules are checked at every change of a pod, a Job or a claim.
type rules struct {
	w *world

	mu   sync.Mutex // guards what follows
	pods map[string]*v1.Pod
	// wasReady has the names of all pods that have been ready.
	wasReady    map[string]bool
	deployments map[string]bounds
	jobs        map[string]batch.JobStatus
	// kept has the replicas of StatefulSets whose pods are not replaced any more.
	kept map[string]int
	// claims has the volumes of the claims that exist, or "", and holders the claim that
	// each volume has or had.
	claims  map[types.UID]string
	holders map[string]types.UID
	// undisturbed says that no node falls silent: pods end for the reasons of
	// their controllers alone.
	undisturbed bool
}

func newRules(w *world) *rules {
	return &rules{
		w: w, pods: map[string]*v1.Pod{}, wasReady: map[string]bool{}, deployments: map[string]bounds{}, jobs: map[string]batch.JobStatus{}, kept: map[string]int{},
		claims: map[types.UID]string{}, holders: map[string]types.UID{},
	}
}

const namespace = "default"

// start follows the changes until ctx ends.
func (r *rules) start(ctx context.Context, running *sync.WaitGroup) {
	follow := func(from watch.Interface, err error, each func(watch.Event)) {
		if err != nil {
			r.w.t.Fatal(err)
		}
		running.Go(func() {
			defer from.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, ok := <-from.ResultChan():
					if !ok || e.Type == watch.Error {
						if ctx.Err() == nil {
							r.w.t.Errorf("seed %d: the watch of the rules ended: %v", r.w.seed, e.Object)
						}
						return
					}
					r.mu.Lock()
					each(e)
					r.mu.Unlock()
				}
			}
		})
	}
	whole := metav1.ListOptions{TimeoutSeconds: new(int64(24 * time.Hour / time.Second))} // the server ends others in time
	pods, err := r.w.admin.CoreV1().Pods(namespace).Watch(ctx, whole)
	follow(pods, err, func(e watch.Event) { r.pod(e.Type, e.Object.(*v1.Pod)) })
	jobs, err := r.w.admin.BatchV1().Jobs(namespace).Watch(ctx, whole)
	follow(jobs, err, func(e watch.Event) { r.job(e.Object.(*batch.Job)) })
	claims, err := r.w.admin.CoreV1().PersistentVolumeClaims(namespace).Watch(ctx, whole)
	follow(claims, err, func(e watch.Event) { r.claim(e.Type, e.Object.(*v1.PersistentVolumeClaim)) })
}

func (r *rules) broken(format string, args ...any) {
	r.w.t.Errorf("seed %d: "+format, append([]any{r.w.seed}, args...)...)
}

// expect sets what a Deployment allows, and what it allowed before until it has
// converged. It must be called before the Deployment changes.
func (r *rules) expect(name string, replicas, surge, unavailable int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.deployments[name]
	if !known {
		b.least = 0 // it begins with none
	} else {
		b.least = min(b.least, replicas-unavailable)
	}
	b.most = max(b.most, replicas+surge)
	r.deployments[name] = b
}

// converged says that a Deployment has its replicas.
func (r *rules) converged(name string, replicas, surge, unavailable int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deployments[name] = bounds{replicas + surge, replicas - unavailable}
}

// keep says that a StatefulSet keeps the pods that it has.
func (r *rules) keep(set string, replicas int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[set] = replicas
}

// forget says that a Deployment is deleted.
func (r *rules) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.deployments, name)
}

func active(p *v1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed
}

// pod checks a change of a pod. r.mu is held.
func (r *rules) pod(what watch.EventType, p *v1.Pod) {
	before := r.pods[p.Name]
	if what == watch.Deleted {
		delete(r.pods, p.Name)
	} else {
		r.pods[p.Name] = p
	}
	if podquery.IsReady(p) {
		r.wasReady[p.Name] = true
	}
	if r.undisturbed && *wide && what != watch.Deleted {
		r.stable(before, p)
	}
	if app := p.Labels["app"]; app != "" {
		r.deployment(app)
	}
	if set := p.Labels["set"]; set != "" && r.undisturbed {
		r.member(set, what, before, p)
	}
}

// stable checks that nobody but the kubelet takes readiness from a pod that no user makes
// fail, and that no pod is evicted that tolerates the taint for longer than users leave it on a node.
func (r *rules) stable(before, p *v1.Pod) {
	if before != nil && before.UID == p.UID && active(before) && podquery.IsReady(before) && active(p) && !podquery.IsReady(p) && p.Labels["job"] == "" && len(p.Finalizers) == 0 {
		r.broken("pod %s was ready and is not any more, though no node fell silent", p.Name)
	}
	if c := podquery.Condition(&p.Status, v1.DisruptionTarget); c != nil && c.Reason == "DeletionByTaintManager" {
		r.broken("pod %s is evicted, though it tolerates the taint for %v", p.Name, tolerated)
	}
}

// deployment checks the numbers of a Deployment's pods.
func (r *rules) deployment(name string) {
	b, ok := r.deployments[name]
	if !ok {
		return
	}
	all, ready := 0, 0
	for _, p := range r.pods {
		if p.Labels["app"] != name || !active(p) {
			continue
		}
		all++
		if podquery.IsReady(p) {
			ready++
		}
	}
	if all > b.most {
		r.broken("deployment %s has %d pods, and maxSurge allows %d", name, all, b.most)
	}
	if ready < b.least && r.undisturbed {
		r.broken("deployment %s has %d ready pods, and maxUnavailable requires %d", name, ready, b.least)
	}
}

// member checks the order of a StatefulSet: a pod is created after its
// predecessors were ready, and deleted after its successors. A StatefulSet that was
// deleted without its pods and created again keeps them.
func (r *rules) member(set string, what watch.EventType, before, p *v1.Pod) {
	ordinal, err := strconv.Atoi(strings.TrimPrefix(p.Name, set+"-"))
	if err != nil {
		r.broken("statefulset %s has a pod %s", set, p.Name)
		return
	}
	for i := range ordinal {
		if name := fmt.Sprintf("%s-%d", set, i); what == watch.Added && !r.wasReady[name] {
			r.broken("pod %s is created before %s was ready", p.Name, name)
		}
	}
	if replicas, kept := r.kept[set]; kept && ordinal < replicas && p.DeletionTimestamp != nil {
		r.broken("pod %s is replaced, though its statefulset was created again as it was", p.Name)
	}
	next := r.pods[fmt.Sprintf("%s-%d", set, ordinal+1)]
	if before != nil && before.DeletionTimestamp == nil && p.DeletionTimestamp != nil && next != nil {
		r.broken("pod %s is deleted before %s", p.Name, next.Name)
	}
}

// claim checks that there are no more claims than their quota allows, that a claim keeps its
// volume, and that no volume is of two claims, also one after the other. r.mu is held.
func (r *rules) claim(what watch.EventType, c *v1.PersistentVolumeClaim) {
	if what == watch.Deleted {
		delete(r.claims, c.UID)
		return
	}
	before, now := r.claims[c.UID], c.Spec.VolumeName
	r.claims[c.UID] = now
	if n := len(r.claims); n > claimsAllowed {
		r.broken("there are %d claims, and their quota allows %d", n, claimsAllowed)
	}
	if before != "" && now != before {
		r.broken("claim %s was bound to volume %s, and now to %q", c.Name, before, now)
	}
	if now == "" {
		return
	}
	if holder, held := r.holders[now]; held && holder != c.UID {
		r.broken("volume %s is bound to claim %s, and was bound to another one", now, c.Name)
	}
	r.holders[now] = c.UID
}

// job checks that what a Job counts only grows, and never beyond its completions.
// A Job that becomes smaller forgets the indexes that it has no more.
func (r *rules) job(j *batch.Job) {
	if j.Labels[elastic] != "" {
		return
	}
	before := r.jobs[j.Name]
	r.jobs[j.Name] = j.Status
	if j.Status.Succeeded < before.Succeeded || j.Status.Failed < before.Failed {
		r.broken("job %s counted %d succeeded and %d failed pods, and now %d and %d", j.Name, before.Succeeded, before.Failed, j.Status.Succeeded, j.Status.Failed)
	}
	if j.Status.Succeeded > *j.Spec.Completions {
		r.broken("job %s counts %d succeeded pods for %d completions", j.Name, j.Status.Succeeded, *j.Spec.Completions)
	}
}
