package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/coracle-io/coracle/internal/feature"
)

// statefulSetFields are the parts of a StatefulSet that belong to features.
var statefulSetFields = []feature.Field[appsv1.StatefulSetSpec]{{
	Gate: "MaxUnavailableStatefulSet",
	Used: func(s *appsv1.StatefulSetSpec) bool {
		return s.UpdateStrategy.RollingUpdate != nil && s.UpdateStrategy.RollingUpdate.MaxUnavailable != nil
	},
	Clear: func(s *appsv1.StatefulSetSpec) { s.UpdateStrategy.RollingUpdate.MaxUnavailable = nil },
}}

// deploymentStatusFields are the parts of a Deployment's status that belong to
// features.
var deploymentStatusFields = []feature.Field[appsv1.DeploymentStatus]{{
	Gate:  terminatingReplicas,
	Used:  func(s *appsv1.DeploymentStatus) bool { return s.TerminatingReplicas != nil },
	Clear: func(s *appsv1.DeploymentStatus) { s.TerminatingReplicas = nil },
}}

// replicaSetStatusFields are the parts of a ReplicaSet's status that belong to
// features.
var replicaSetStatusFields = []feature.Field[appsv1.ReplicaSetStatus]{{
	Gate:  terminatingReplicas,
	Used:  func(s *appsv1.ReplicaSetStatus) bool { return s.TerminatingReplicas != nil },
	Clear: func(s *appsv1.ReplicaSetStatus) { s.TerminatingReplicas = nil },
}}

const terminatingReplicas = "DeploymentReplicaSetTerminatingReplicas"
