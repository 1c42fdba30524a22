package apiserver

import (
	"fmt"

	"github.com/spf13/pflag"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/server"

	"github.com/coracle-io/coracle/internal/apiserver/audit"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// auditFlags says what the values of the library's audit flags are.
func auditFlags(fs *pflag.FlagSet) {
	flagvalue.Is(fs, flagvalue.Path, "audit-log-path")
	flagvalue.Is(fs, flagvalue.File, "audit-policy-file", "audit-webhook-config-file")
	flagvalue.OneOf(fs, "audit-log-format", "legacy", "json")
	for _, backend := range []string{"audit-log", "audit-webhook"} {
		flagvalue.OneOf(fs, backend+"-mode", "batch", "blocking", "blocking-strict")
		flagvalue.OneOf(fs, backend+"-version", auditv1.SchemeGroupVersion.String())
	}
}

// newAuditor returns the auditor of the audit options, or nil if there is no
// policy or no backend.
func (a *Server) newAuditor() (*audit.Auditor, error) {
	var c server.Config
	if err := a.options.Audit.ApplyTo(&c); err != nil {
		return nil, err
	}
	if c.AuditBackend == nil || c.AuditPolicyRuleEvaluator == nil {
		return nil, nil
	}
	a.auditBackend = c.AuditBackend
	return audit.New(c.AuditBackend, c.AuditPolicyRuleEvaluator), nil
}

// startAudit starts the audit backend. stop waits until the backend has
// delivered its events. Call it after the last request.
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
