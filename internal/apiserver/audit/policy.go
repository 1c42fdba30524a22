package audit

import (
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator, and keeps the result
// for the request.
func (r *Request) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	r.config = r.auditor.policy.EvaluatePolicyRule(a)
	return r.config
}
