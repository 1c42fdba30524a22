// Package cronjob is the CronJob controller. It creates Jobs at the times of the
// CronJobs' schedules.
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/workload"
	"github.com/coracle-io/coracle/internal/nativehistogram"
	"github.com/coracle-io/coracle/internal/order"
	"github.com/coracle-io/coracle/internal/timespan"
	"github.com/coracle-io/coracle/internal/wallclock"
)

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	workers, skew := 5, newSkew()
	return controller.Descriptor{
		Name:           "cronjob-controller",
		Aliases:        []string{"cronjob"},
		ServiceAccount: "cronjob-controller",
		EventSource:    "cronjob-controller",
		AddFlags:       controller.WorkersFlag(&workers, "concurrent-cron-job-syncs", "cron job objects"),
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, workers, skew) },
	}
}

// newSkew returns the metric of how late Jobs are created.
func newSkew() prometheus.Histogram {
	return nativehistogram.New(prometheus.HistogramOpts{
		Subsystem: "cronjob_controller", Name: "job_creation_skew_duration_seconds",
		Help:    "[STABLE] Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	})
}

var kind = batch.SchemeGroupVersion.WithKind("CronJob")

// nextScheduleDelta is added to the delay until the next scheduled time, so that
// the time has passed when the CronJob is synced.
const nextScheduleDelta = 100 * time.Millisecond

type cronJobs struct {
	*workload.Controller[*batch.CronJob, *batch.Job]
	env       *controller.Env
	kube      kubernetes.Interface
	jobs      cache.SharedIndexInformer
	schedules schedules
	skew      prometheus.Histogram
	// ahead holds when CronJobs were first seen that have been scheduled in the future.
	ahead wallclock.Moments[controller.Key]
}

// newController builds the controller. CronJobs have no selector and so never
// adopt Jobs.
func newController(env *controller.Env, workers int, skew prometheus.Histogram) (controller.Controller, error) {
	informers := env.Client.Informers.Batch().V1()
	c := &cronJobs{env: env, kube: env.Client.Kubernetes, jobs: informers.Jobs().Informer(), skew: skew}
	err := env.Expose(skew)
	if err != nil {
		return nil, err
	}
	c.Controller, err = workload.New(env, workload.Config[*batch.CronJob, *batch.Job]{
		Kind: kind, Queue: "cronjob", Workers: workers,
		Owners: informers.CronJobs().Informer(), Dependents: c.jobs,
		Sync: c.sync,
		OwnerGone: func(_ context.Context, key controller.Key) error {
			c.schedules.forget(key)
			c.ahead.Forget(key)
			return nil
		},
		Tasks: []func(context.Context) error{wallclock.Watch(func() { c.enqueueAll(informers.CronJobs().Lister()) })},
	})
	return c, err
}

// enqueueAll enqueues all CronJobs after the clock was set: their next times are sooner or later.
func (c *cronJobs) enqueueAll(lister batchlisters.CronJobLister) {
	all, err := lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, cj := range all {
		c.Queue.Add(cache.MetaObjectToName(cj))
	}
}

func (c *cronJobs) sync(ctx context.Context, before *batch.CronJob) error {
	changed := c.schedules.changed(before, time.Now())
	owned, err := workload.Controlled[*batch.Job](c.jobs, before.UID)
	if err != nil {
		return err
	}
	cj := before.DeepCopy()
	// Jobs that are deleted because of the history limit are neither completed nor missing.
	workErr := c.cleanupFinishedJobs(ctx, cj, owned)
	if err := c.reconcileActive(ctx, cj, owned); err != nil {
		return errors.Join(workErr, err)
	}
	workErr = errors.Join(workErr, c.startDue(ctx, cj, changed))
	if !equality.Semantic.DeepEqual(cj.Status, before.Status) {
		if _, err := c.kube.BatchV1().CronJobs(cj.Namespace).UpdateStatus(ctx, cj, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return errors.Join(workErr, err)
		}
	}
	return workErr
}

// finishedCondition returns the type of the condition with which a Job has
// finished, or "" if it has not.
func finishedCondition(job *batch.Job) batch.JobConditionType {
	return ptr.Deref(workload.FinishedCondition(job), batch.JobCondition{}).Type
}

// reconcileActive removes Jobs that are finished or gone from status.active.
func (c *cronJobs) reconcileActive(ctx context.Context, cj *batch.CronJob, owned []*batch.Job) error {
	byUID := map[string]*batch.Job{}
	for _, job := range owned {
		byUID[string(job.UID)] = job
		isActive := slices.ContainsFunc(cj.Status.Active, func(r v1.ObjectReference) bool { return r.UID == job.UID })
		outcome := finishedCondition(job)
		if end := job.Status.CompletionTime; outcome == batch.JobComplete && end != nil &&
			(cj.Status.LastSuccessfulTime == nil || end.After(cj.Status.LastSuccessfulTime.Time)) {
			cj.Status.LastSuccessfulTime = end
		}
		switch {
		case !isActive && outcome == "":
			if err := c.checkActive(ctx, cj, job.UID, false); err != nil {
				return err
			}
			if err := c.recoverActive(ctx, cj, job); err != nil {
				return err
			}
		case isActive && outcome != "":
			removeActive(cj, job.UID)
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
			if err := c.checkActive(ctx, cj, ref.UID, true); err != nil {
				return err
			}
			c.env.Events.Eventf(cj, v1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
			removeActive(cj, ref.UID)
		case err != nil:
			return err
		}
	}
	return nil
}

// recoverActive adds a running Job to status.active that this controller has created for a scheduled
// time, but whose status it could not write. Otherwise the concurrency policy would not see the Job.
// A Job that is being deleted, or that is gone although the cache shows it, is not added: the
// controller has taken it out to replace it.
func (c *cronJobs) recoverActive(ctx context.Context, cj *batch.CronJob, job *batch.Job) error {
	at, err := time.Parse(time.RFC3339, job.Annotations[batch.CronJobScheduledTimestampAnnotation])
	if err != nil || job.Name != jobName(cj, at) {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
		return nil //nolint:nilerr // somebody else has created the Job
	}
	latest, err := c.kube.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (latest.UID != job.UID || latest.DeletionTimestamp != nil) {
		return nil
	}
	if err != nil {
		return err
	}
	ref, err := reference.GetReference(scheme.Scheme, job)
	if err != nil {
		return err
	}
	cj.Status.Active = append(cj.Status.Active, *ref)
	if last := cj.Status.LastScheduleTime; last == nil || last.Time.Before(at) {
		cj.Status.LastScheduleTime = &metav1.Time{Time: at}
	}
	return nil
}

// checkActive returns ErrStale if the stored CronJob differs from the cached one in whether a
// Job is active, because this controller has just written it.
func (c *cronJobs) checkActive(ctx context.Context, cj *batch.CronJob, job types.UID, active bool) error {
	latest, err := c.kube.BatchV1().CronJobs(cj.Namespace).Get(ctx, cj.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(latest.Status.Active, func(r v1.ObjectReference) bool { return r.UID == job }) != active {
		return controller.ErrStale
	}
	return nil
}

func removeActive(cj *batch.CronJob, job types.UID) {
	cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r v1.ObjectReference) bool { return r.UID == job })
}

// cleanupFinishedJobs deletes the oldest finished Jobs above the history limits.
func (c *cronJobs) cleanupFinishedJobs(ctx context.Context, cj *batch.CronJob, owned []*batch.Job) error {
	for outcome, limit := range map[batch.JobConditionType]*int32{
		batch.JobComplete: cj.Spec.SuccessfulJobsHistoryLimit, batch.JobFailed: cj.Spec.FailedJobsHistoryLimit,
	} {
		if limit == nil {
			continue
		}
		finished := slices.DeleteFunc(slices.Clone(owned), func(j *batch.Job) bool {
			return finishedCondition(j) != outcome || j.DeletionTimestamp != nil
		})
		slices.SortFunc(finished, byStartTime)
		for len(finished) > int(*limit) {
			if err := c.delete(ctx, cj, finished[0].Name, finished[0].UID); err != nil {
				return err
			}
			finished = finished[1:]
		}
	}
	return nil
}

// byStartTime orders Jobs by when they started. Those that have not started are the last.
func byStartTime(a, b *batch.Job) int {
	return cmp.Or(
		order.FalseFirst(a.Status.StartTime == nil, b.Status.StartTime == nil),
		ptr.Deref(a.Status.StartTime, metav1.Time{}).Time.Compare(ptr.Deref(b.Status.StartTime, metav1.Time{}).Time),
		strings.Compare(a.Name, b.Name),
	)
}

// delete deletes a Job and removes it from status.active.
func (c *cronJobs) delete(ctx context.Context, cj *batch.CronJob, name string, uid types.UID) error {
	background := metav1.DeletePropagationBackground
	err := c.kube.BatchV1().Jobs(cj.Namespace).Delete(ctx, name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err = controller.IgnoreNotFoundOrConflict(err); err != nil {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("deleting job %s: %w", name, err)
	}
	removeActive(cj, uid)
	c.env.Events.Eventf(cj, v1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", name)
	return nil
}

// startDue creates the Job of the latest scheduled time if it has not been created
// yet, and enqueues the CronJob for the next scheduled time. changed is when the
// CronJob got its schedule, or zero if that is not known.
func (c *cronJobs) startDue(ctx context.Context, cj *batch.CronJob, changed time.Time) error {
	if cj.DeletionTimestamp != nil {
		return nil
	}
	if zone := cj.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			c.env.Events.Eventf(cj, v1.EventTypeWarning, "UnknownTimeZone", "invalid timeZone: %q: %s", *zone, err)
			return nil
		}
	}
	if cj.Spec.Suspend != nil && *cj.Spec.Suspend {
		return nil
	}
	if strings.Contains(cj.Spec.Schedule, "TZ") {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", cj.Spec.Schedule)
	}
	s, err := schedule(cj)
	if err != nil {
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s", cj.Spec.Schedule, err)
		return nil
	}
	now := time.Now()
	if s.Next(now).IsZero() { // for example 31 February
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : %s", cj.Spec.Schedule, "time difference between two schedules is less than 1 second")
		return nil
	}
	if !changed.IsZero() {
		changed = wallclock.Past(changed, now).Round(0) // by the clock as it is set now
	}
	at, missed, next := mostRecentScheduleTime(c.fromNow(cj, s, now), s, changed, now)
	c.Queue.AddAfter(cache.MetaObjectToName(cj), next.Sub(now)+nextScheduleDelta)
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
	if slices.ContainsFunc(cj.Status.Active, func(r v1.ObjectReference) bool { return r.Name == jobName(cj, at) }) {
		return nil
	}
	if len(cj.Status.Active) > 0 && cj.Spec.ConcurrencyPolicy == batch.ForbidConcurrent {
		c.env.Events.Eventf(cj, v1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
		return nil
	}
	if err := c.checkDue(ctx, cj, at); err != nil {
		return err
	}
	if cj.Spec.ConcurrencyPolicy == batch.ReplaceConcurrent {
		for _, ref := range slices.Clone(cj.Status.Active) {
			if err := c.delete(ctx, cj, ref.Name, ref.UID); err != nil {
				return err
			}
		}
	}
	return c.create(ctx, cj, at)
}

// fromNow returns a CronJob from whose times the next one is computed. If the clock was set back by
// more than a period, so that the CronJob has been scheduled in the future, its times count from when
// the controller has seen that. Otherwise no Job would be started for as long as the clock was set
// back. Times that come again within a period start no second Job.
func (c *cronJobs) fromNow(cj *batch.CronJob, s cron.Schedule, now time.Time) *batch.CronJob {
	last := lastScheduled(cj)
	if !setBack(s, last, now) {
		return cj
	}
	seen := c.ahead.At(cache.MetaObjectToName(cj), last, now)
	from := *cj
	from.Status.LastScheduleTime = &metav1.Time{Time: wallclock.Past(seen, now).Round(0)} // by the clock as it is set now
	return &from
}

// checkDue returns ErrStale if the stored CronJob is another one than the cached one, has another
// spec, such as one that is suspended, or has already started a Job for a scheduled time. That Job
// may be gone, and its name free again. A time in the future that the cache shows too is of before
// the clock was set back.
func (c *cronJobs) checkDue(ctx context.Context, cj *batch.CronJob, at time.Time) error {
	latest, err := c.kube.BatchV1().CronJobs(cj.Namespace).Get(ctx, cj.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return controller.ErrStale
	}
	if err != nil {
		return err
	}
	last := latest.Status.LastScheduleTime
	if latest.UID != cj.UID || latest.Generation != cj.Generation || last != nil && !last.Time.Before(at) && !last.Equal(cj.Status.LastScheduleTime) {
		return controller.ErrStale
	}
	return nil
}

// create creates the Job of a scheduled time. Its name contains that time, so that
// it cannot be created twice.
func (c *cronJobs) create(ctx context.Context, cj *batch.CronJob, at time.Time) error {
	job := newJob(cj, at)
	created, err := c.kube.BatchV1().Jobs(cj.Namespace).Create(ctx, job, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		created, err = c.kube.BatchV1().Jobs(cj.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !metav1.IsControlledBy(created, cj) {
			return nil // it is not a Job of this CronJob
		}
		if finishedCondition(created) != "" {
			cj.Status.LastScheduleTime = &metav1.Time{Time: at}
			return nil
		}
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		c.env.Events.Eventf(cj, v1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return err
	default:
		c.skew.Observe(created.CreationTimestamp.Sub(at).Seconds())
		c.env.Events.Eventf(cj, v1.EventTypeNormal, "SuccessfulCreate", "Created job %v", created.Name)
	}
	ref, err := reference.GetReference(scheme.Scheme, created)
	if err != nil {
		return err
	}
	removeActive(cj, created.UID)
	cj.Status.Active = append(cj.Status.Active, *ref)
	cj.Status.LastScheduleTime = &metav1.Time{Time: at}
	return nil
}

// jobName returns the name of the Job for a scheduled time.
func jobName(cj *batch.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60)
}

// newJob returns the Job of a CronJob for a scheduled time.
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
			Name:            jobName(cj, at),
			Labels:          maps.Clone(cj.Spec.JobTemplate.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, kind)},
		},
		Spec: *cj.Spec.JobTemplate.Spec.DeepCopy(),
	}
}
