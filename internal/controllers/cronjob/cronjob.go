// Package cronjob starts Jobs at the times of CronJobs' schedules.
package cronjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/reference"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/timespan"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers := 5
	return controller.Descriptor{
		Name:           "cronjob-controller",
		Aliases:        []string{"cronjob"},
		ServiceAccount: "cronjob-controller",
		EventSource:    "cronjob-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-cron-job-syncs", "cron job objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers) },
	}
}

var kind = batch.SchemeGroupVersion.WithKind("CronJob")

// late is added to the wait for the next time, so that it has surely come.
const late = 100 * time.Millisecond

type cronJobs struct {
	*workload.Controller[*batch.CronJob, *batch.Job]
	env  *controller.Env
	kube kubernetes.Interface
	jobs cache.SharedIndexInformer
}

// newController builds the controller. CronJobs adopt nothing: they have no selector.
func newController(env *controller.Env, workers int) (controller.Controller, error) {
	informers := env.Client.Informers.Batch().V1()
	c := &cronJobs{env: env, kube: env.Client.Kubernetes, jobs: informers.Jobs().Informer()}
	var err error
	c.Controller, err = workload.New(env, workload.Config[*batch.CronJob, *batch.Job]{
		Kind: kind, Queue: "cronjob", Workers: workers,
		Owners: informers.CronJobs().Informer(), Dependents: c.jobs,
		Sync: c.sync,
	})
	return c, err
}

func (c *cronJobs) sync(ctx context.Context, before *batch.CronJob) error {
	owned, err := workload.Controlled[*batch.Job](c.jobs, before.UID)
	if err != nil {
		return err
	}
	cj := before.DeepCopy()
	if err := c.reconcileActive(ctx, cj, owned); err != nil {
		return err
	}
	workErr := errors.Join(c.trim(ctx, cj, owned), c.start(ctx, cj))
	if !equality.Semantic.DeepEqual(cj.Status, before.Status) {
		if _, err := c.kube.BatchV1().CronJobs(cj.Namespace).UpdateStatus(ctx, cj, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return errors.Join(workErr, err)
		}
	}
	return workErr
}

// end is the condition with which a Job is over, or "".
func end(job *batch.Job) batch.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batch.JobComplete || c.Type == batch.JobFailed) && c.Status == v1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// reconcileActive takes Jobs that are over or gone out of the status.
func (c *cronJobs) reconcileActive(ctx context.Context, cj *batch.CronJob, owned []*batch.Job) error {
	byUID := map[string]*batch.Job{}
	for _, job := range owned {
		byUID[string(job.UID)] = job
		isActive := slices.ContainsFunc(cj.Status.Active, func(r v1.ObjectReference) bool { return r.UID == job.UID })
		switch outcome := end(job); {
		case !isActive && outcome == "":
			latest, err := c.kube.BatchV1().CronJobs(cj.Namespace).Get(ctx, cj.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if slices.ContainsFunc(latest.Status.Active, func(r v1.ObjectReference) bool { return r.UID == job.UID }) {
				return controller.ErrStale
			}
			c.env.Events.Eventf(cj, v1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
		case isActive && outcome != "":
			drop(cj, job)
			if outcome == batch.JobComplete && job.Status.CompletionTime != nil &&
				(cj.Status.LastSuccessfulTime == nil || job.Status.CompletionTime.After(cj.Status.LastSuccessfulTime.Time)) {
				cj.Status.LastSuccessfulTime = job.Status.CompletionTime
			}
			c.env.Events.Eventf(cj, v1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, outcome)
		}
	}
	for _, ref := range slices.Clone(cj.Status.Active) {
		if byUID[string(ref.UID)] != nil {
			continue
		}
		job, err := c.kube.BatchV1().Jobs(cj.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && job.UID != ref.UID:
			c.env.Events.Eventf(cj, v1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
			drop(cj, &batch.Job{ObjectMeta: metav1.ObjectMeta{UID: ref.UID}})
		case err != nil:
			return err
		}
	}
	return nil
}

func drop(cj *batch.CronJob, job *batch.Job) {
	cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r v1.ObjectReference) bool { return r.UID == job.UID })
}

// trim deletes the oldest finished Jobs above the history limits.
func (c *cronJobs) trim(ctx context.Context, cj *batch.CronJob, owned []*batch.Job) error {
	for outcome, limit := range map[batch.JobConditionType]*int32{
		batch.JobComplete: cj.Spec.SuccessfulJobsHistoryLimit, batch.JobFailed: cj.Spec.FailedJobsHistoryLimit,
	} {
		if limit == nil {
			continue
		}
		over := slices.DeleteFunc(slices.Clone(owned), func(j *batch.Job) bool { return end(j) != outcome || j.DeletionTimestamp != nil })
		slices.SortFunc(over, func(a, b *batch.Job) int {
			return cmp.Or(startOf(a).Compare(startOf(b)), strings.Compare(a.Name, b.Name))
		})
		for len(over) > int(*limit) {
			if err := c.delete(ctx, cj, over[0].Name); err != nil {
				return err
			}
			over = over[1:]
		}
	}
	return nil
}

func startOf(job *batch.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}

func (c *cronJobs) delete(ctx context.Context, cj *batch.CronJob, name string) error {
	background := metav1.DeletePropagationBackground
	err := c.kube.BatchV1().Jobs(cj.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("deleting job %s: %w", name, err)
	}
	c.env.Events.Eventf(cj, v1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", name)
	return nil
}

// start starts the Job of the latest time that has come, and comes back at
// the next.
func (c *cronJobs) start(ctx context.Context, cj *batch.CronJob) error {
	if cj.DeletionTimestamp != nil || cj.Spec.Suspend != nil && *cj.Spec.Suspend {
		return nil
	}
	s, err := schedule(cj)
	if err != nil {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s", cj.Spec.Schedule, err)
		return nil
	}
	now := time.Now()
	at, missed, next := due(cj, s, now)
	if !next.IsZero() {
		c.Queue.AddAfter(cache.MetaObjectToName(cj), next.Sub(now)+late)
	}
	if missed {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	if at.IsZero() {
		return nil
	}
	if d := cj.Spec.StartingDeadlineSeconds; d != nil && at.Add(timespan.Seconds(*d)).Before(now) {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s", at.UTC().Format(time.RFC1123Z))
		return nil
	}
	if len(cj.Status.Active) > 0 {
		switch cj.Spec.ConcurrencyPolicy {
		case batch.ForbidConcurrent:
			c.env.Events.Eventf(cj, v1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return nil
		case batch.ReplaceConcurrent:
			for _, ref := range slices.Clone(cj.Status.Active) {
				if err := c.delete(ctx, cj, ref.Name); err != nil {
					return err
				}
				drop(cj, &batch.Job{ObjectMeta: metav1.ObjectMeta{UID: ref.UID}})
			}
		}
	}
	return c.create(ctx, cj, at)
}

// create makes the Job of a time. Its name is that time's, so that it cannot
// be made twice.
func (c *cronJobs) create(ctx context.Context, cj *batch.CronJob, at time.Time) error {
	job := newJob(cj, at)
	created, err := c.kube.BatchV1().Jobs(cj.Namespace).Create(ctx, job, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		created, err = c.kube.BatchV1().Jobs(cj.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !metav1.IsControlledBy(created, cj) || end(created) != "" {
			cj.Status.LastScheduleTime = &metav1.Time{Time: at}
			return nil
		}
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return err
	default:
		c.env.Events.Eventf(cj, v1.EventTypeNormal, "SuccessfulCreate", "Created job %v", created.Name)
	}
	ref, err := reference.GetReference(scheme.Scheme, created)
	if err != nil {
		return err
	}
	drop(cj, created)
	cj.Status.Active = append(cj.Status.Active, *ref)
	cj.Status.LastScheduleTime = &metav1.Time{Time: at}
	return nil
}

// newJob is the Job of a CronJob for a time.
func newJob(cj *batch.CronJob, at time.Time) *batch.Job {
	annotations := maps.Clone(cj.Spec.JobTemplate.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	zone := time.UTC
	if cj.Spec.TimeZone != nil {
		if z, err := time.LoadLocation(*cj.Spec.TimeZone); err == nil {
			zone = z
		}
	}
	annotations[batch.CronJobScheduledTimestampAnnotation] = at.In(zone).Format(time.RFC3339)
	return &batch.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       cj.Namespace,
			Name:            fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60),
			Labels:          maps.Clone(cj.Spec.JobTemplate.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, kind)},
		},
		Spec: *cj.Spec.JobTemplate.Spec.DeepCopy(),
	}
}
