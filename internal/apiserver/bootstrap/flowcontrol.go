package bootstrap

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// priorityLevel is a limited priority level.
type priorityLevel struct {
	name                            string
	shares, lendable                int32
	queues, handSize, queueCapacity int32
}

// priorityLevels returns the limited priority levels: the nominal shares of the
// server's concurrency, the percentage of them that may be lent, and the queues
// of waiting requests. Without queues, requests are rejected.
func priorityLevels() []priorityLevel {
	return []priorityLevel{
		{"catch-all", 5, 0, 0, 0, 0},
		{"global-default", 20, 50, 128, 6, 50},
		{"leader-election", 10, 0, 16, 4, 50},
		{"node-high", 40, 25, 64, 6, 50},
		{"system", 30, 33, 64, 6, 50},
		{"workload-high", 40, 50, 128, 6, 50},
		{"workload-low", 100, 90, 128, 6, 50},
	}
}

func flowControl() []wanted {
	out := []wanted{{objects.PriorityLevels, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: flowMeta("exempt"),
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: ptr.To[int32](0), LendablePercent: ptr.To[int32](0)},
		}}}}
	for _, l := range priorityLevels() {
		response := flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
		if l.queues > 0 {
			response = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{
				Queues: l.queues, HandSize: l.handSize, QueueLengthLimit: l.queueCapacity}}
		}
		out = append(out, wanted{objects.PriorityLevels, &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: flowMeta(l.name),
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: ptr.To(l.shares), LendablePercent: ptr.To(l.lendable), LimitResponse: response},
			}}})
	}
	manager, scheduler := flowUser("system:kube-controller-manager"), flowUser("system:kube-scheduler")
	system, everybody := flowAccounts("kube-system"), []flowcontrolv1.Subject{flowGroup("system:unauthenticated"), flowGroup("system:authenticated")}
	nodes := flowGroup("system:nodes")
	byUser, byNamespace := flowcontrolv1.FlowDistinguisherMethodByUserType, flowcontrolv1.FlowDistinguisherMethodByNamespaceType
	const noDistinguisher = flowcontrolv1.FlowDistinguisherMethodType("")
	for _, s := range []*flowcontrolv1.FlowSchema{
		flowSchema("exempt", "exempt", 1, noDistinguisher, anything(), flowGroup("system:masters")),
		flowSchema("probes", "exempt", 2, noDistinguisher, flowcontrolv1.PolicyRulesWithSubjects{NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}}}}, everybody...),
		flowSchema("system-leader-election", "leader-election", 100, byUser, on(inNamespaces("coordination.k8s.io", []string{"leases"}, "get", "create", "update")),
			manager, scheduler, system),
		flowSchema("system-node-high", "node-high", 400, byUser, on(
			flowcontrolv1.ResourcePolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, ClusterScope: true, Namespaces: []string{"*"}},
			inNamespaces("coordination.k8s.io", []string{"leases"}, "*")), nodes),
		flowSchema("system-nodes", "system", 500, byUser, anything(), nodes),
		flowSchema("kube-controller-manager", "workload-high", 800, byNamespace, anything(), manager),
		flowSchema("kube-scheduler", "workload-high", 800, byNamespace, anything(), scheduler),
		flowSchema("kube-system-service-accounts", "workload-high", 900, byNamespace, anything(), system),
		flowSchema("service-accounts", "workload-low", 9000, byUser, anything(), flowGroup("system:serviceaccounts")),
		flowSchema("global-default", "global-default", 9900, byUser, anything(), everybody...),
		flowSchema("catch-all", "catch-all", 10000, byUser, anything(), everybody...),
	} {
		out = append(out, wanted{objects.FlowSchemas, s})
	}
	return out
}

func flowMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}
}

func flowSchema(name, level string, precedence int32, by flowcontrolv1.FlowDistinguisherMethodType, rules flowcontrolv1.PolicyRulesWithSubjects, who ...flowcontrolv1.Subject) *flowcontrolv1.FlowSchema {
	rules.Subjects = who
	s := &flowcontrolv1.FlowSchema{ObjectMeta: flowMeta(name), Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
		MatchingPrecedence:         precedence,
		Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{rules},
	}}
	if by != "" {
		s.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: by}
	}
	return s
}

func anything() flowcontrolv1.PolicyRulesWithSubjects {
	all := []string{"*"}
	return flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
}

func on(rules ...flowcontrolv1.ResourcePolicyRule) flowcontrolv1.PolicyRulesWithSubjects {
	return flowcontrolv1.PolicyRulesWithSubjects{ResourceRules: rules}
}

func inNamespaces(group string, resources []string, verbs ...string) flowcontrolv1.ResourcePolicyRule {
	return flowcontrolv1.ResourcePolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: resources, Namespaces: []string{"*"}}
}

func flowUser(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
}

func flowGroup(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
}

func flowAccounts(namespace string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: "*"}}
}
