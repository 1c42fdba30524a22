package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// statefulSetFields are the fields of a StatefulSet that belong to features.
func statefulSetFields() []feature.Field[appsv1.StatefulSetSpec] {
	return []feature.Field[appsv1.StatefulSetSpec]{{
		Gate: feature.MaxUnavailableStatefulSet,
		Used: func(s *appsv1.StatefulSetSpec) bool {
			return s.UpdateStrategy.RollingUpdate != nil && s.UpdateStrategy.RollingUpdate.MaxUnavailable != nil
		},
		Clear: func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.RollingUpdate.MaxUnavailable = nil },
	}}
}

// deploymentStatusFields are the fields of a Deployment's status that belong
// to features.
func deploymentStatusFields() []feature.Field[appsv1.DeploymentStatus] {
	return []feature.Field[appsv1.DeploymentStatus]{{
		Gate:  terminatingReplicas,
		Used:  func(s *appsv1.DeploymentStatus) bool { return s.TerminatingReplicas != nil },
		Clear: func(s *appsv1.DeploymentStatus) { s.TerminatingReplicas = nil },
	}}
}

// replicaSetStatusFields are the fields of a ReplicaSet's status that belong
// to features.
func replicaSetStatusFields() []feature.Field[appsv1.ReplicaSetStatus] {
	return []feature.Field[appsv1.ReplicaSetStatus]{{
		Gate:  terminatingReplicas,
		Used:  func(s *appsv1.ReplicaSetStatus) bool { return s.TerminatingReplicas != nil },
		Clear: func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = nil },
	}}
}

const terminatingReplicas = feature.DeploymentReplicaSetTerminatingReplicas
