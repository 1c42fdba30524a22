package component

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The command lines that kubeadm and kind write for the controller manager are accepted as they
// stand.
func TestKubeadmControllerManager(t *testing.T) {
	const line = `--allocate-node-cidrs=true
		--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
		--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf
		--bind-address=127.0.0.1
		--client-ca-file=/etc/kubernetes/pki/ca.crt
		--cluster-cidr=10.244.0.0/16
		--cluster-name=kubernetes
		--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt
		--cluster-signing-key-file=/etc/kubernetes/pki/ca.key
		--controllers=*,bootstrapsigner,tokencleaner
		--enable-hostpath-provisioner=true
		--feature-gates=NodeLogQuery=true
		--kubeconfig=/etc/kubernetes/controller-manager.conf
		--leader-elect=true
		--node-cidr-mask-size=24
		--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
		--root-ca-file=/etc/kubernetes/pki/ca.crt
		--service-account-private-key-file=/etc/kubernetes/pki/sa.key
		--service-cluster-ip-range=10.96.0.0/12
		--use-service-account-credentials=true`
	m := NewControllerManager()
	for _, flag := range strings.Fields(line) {
		flags := pflag.NewFlagSet("controller-manager", pflag.ContinueOnError)
		m.AddFlags(flags)
		if err := flags.Parse([]string{flag}); err != nil {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
}
