package workload

import (
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// FinishedCondition returns the condition Complete or Failed with which a Job has
// finished, or nil if it has not.
func FinishedCondition(job *batch.Job) *batch.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batch.JobComplete || c.Type == batch.JobFailed) && c.Status == v1.ConditionTrue {
			return c
		}
	}
	return nil
}
