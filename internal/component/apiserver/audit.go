package apiserver

import (
	"fmt"

	"k8s.io/apiserver/pkg/server"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
)

// newAuditor makes what --audit-policy-file and a backend's flags ask for. It
// is nil, and records nothing, without a policy or without a backend.
func (a *Server) newAuditor() (*audit.Auditor, error) {
	var c server.Config
	if err := a.flags.Audit.ApplyTo(&c); err != nil {
		return nil, err
	}
	if c.AuditBackend == nil || c.AuditPolicyRuleEvaluator == nil {
		return nil, nil
	}
	a.auditBackend = c.AuditBackend
	return audit.New(c.AuditBackend, c.AuditPolicyRuleEvaluator), nil
}

// startAudit starts the backends. stop, for the time when the last request
// has been answered, waits until they have delivered what they hold.
func (a *Server) startAudit() (stop func(), err error) {
	if a.auditBackend == nil {
		return func() {}, nil
	}
	end := make(chan struct{})
	if err := a.auditBackend.Run(end); err != nil {
		return nil, fmt.Errorf("start the audit backend: %w", err)
	}
	return func() {
		close(end)
		a.auditBackend.Shutdown()
	}, nil
}
