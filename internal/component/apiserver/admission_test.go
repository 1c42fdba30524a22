package apiserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/component/apiserver"
)

const (
	admissionConfiguration = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
`
	podSecurityConfiguration = `
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline}
exemptions: {namespaces: [kube-system]}
`
)

// The configuration's default holds in namespaces without labels, but for
// those that it exempts.
func TestPodSecurityConfiguration(t *testing.T) {
	path := file(t, "admission.yaml", admissionConfiguration+"- {name: PodSecurity, path: podsecurity.yaml}\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "podsecurity.yaml"), []byte(podSecurityConfiguration), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startWhole(t, "--admission-control-config-file="+path, "--disable-admission-plugins=ServiceAccount")
	const pod = `{"metadata": {"name": "p"}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}}`
	if code, body := s.do(s.admin(), "POST", "/api/v1/namespaces/default/pods", pod); code != 403 || !strings.Contains(body, `violates PodSecurity \"baseline:latest\"`) {
		t.Errorf("a pod on the host's network: %d %s", code, body)
	}
	if code, body := s.do(s.admin(), "POST", "/api/v1/namespaces/kube-system/pods", pod); code != 201 {
		t.Errorf("in an exempt namespace: %d %s", code, body)
	}
}

func TestAdmissionConfigurationIsValidated(t *testing.T) {
	for content, want := range map[string][]string{
		"none":                                  {"--admission-control-config-file"},
		admissionConfiguration + "- {nam: x}\n": {`unknown field "plugins[0].nam"`},
		admissionConfiguration + "- {name: PodSecurity, path: missing.yaml}\n- {name: LimitRanger, configuration: {a: b}}\n":                                                                        {"plugin PodSecurity", "missing.yaml", "plugin LimitRanger: this plugin takes no configuration here"},
		admissionConfiguration + "- {name: ResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{matchContains: [cpu]}]}}\n": {"plugin ResourceQuota: limitedResources[0].resource: Required value"},
		admissionConfiguration + "- {name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: harsh}}}\n":        {"plugin PodSecurity", "defaults.enforce", "harsh"},
	} {
		f := apiserver.NewOptions()
		f.Admission.ConfigFile = file(t, "admission.yaml", content)
		got := refusal(t, f)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s\n%s lacks %q", content, got, part)
			}
		}
	}
}
