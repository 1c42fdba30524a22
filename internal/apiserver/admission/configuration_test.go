package admission

import (
	"strings"
	"testing"
)

// TestConfigurationsAreValidated checks the errors for configurations of plugins
// that have no directory of objects.
func TestConfigurationsAreValidated(t *testing.T) {
	const (
		quotas      = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\n"
		tolerations = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n"
		limits      = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	)
	for name, test := range map[string]struct{ plugin, content, want string }{
		"quotas":               {"ResourceQuota", quotas + "limitedResources: [{resource: pods, matchContains: [cpu]}]", ""},
		"quotas of old":        {"ResourceQuota", `{"apiVersion": "resourcequota.admission.k8s.io/v1beta1", "kind": "Configuration", "limitedResources": [{"resource": "pods"}]}`, ""},
		"no resource":          {"ResourceQuota", quotas + "limitedResources: [{apiGroup: apps}]", "limitedResources[0].resource: Required value"},
		"unknown field":        {"ResourceQuota", quotas + "limited: []", `unknown field "limited"`},
		"node selectors":       {"PodNodeSelector", "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: env=dev, web: 'a=b, c=d'}", ""},
		"not a selector":       {"PodNodeSelector", "podNodeSelectorPluginConfig: {web: env}", "podNodeSelectorPluginConfig[web]: invalid selector: [env]"},
		"not YAML":             {"PodNodeSelector", "{", "yaml"},
		"tolerations":          {"PodTolerationRestriction", tolerations + "default: [{key: k, operator: Exists}]\nwhitelist: [{operator: Exists}]", ""},
		"an invalid operator":  {"PodTolerationRestriction", tolerations + "default: [{key: k, operator: Some}]", `invalid config: [podtolerationrestriction.default[0].operator: Unsupported value: "Some"`},
		"an invalid whitelist": {"PodTolerationRestriction", tolerations + "whitelist: [{value: v}]", "podtolerationrestriction.whitelist[0].operator: Invalid value"},
		"another version":      {"PodTolerationRestriction", limits + "default: []", `want a Configuration in version podtolerationrestriction.admission.k8s.io/v1alpha1`},
		"event limits":         {"EventRateLimit", limits + "limits: [{type: Server, qps: 5, burst: 9, cacheSize: -1}, {type: User, qps: 1, burst: 1, cacheSize: 9}]", ""},
		"no limits":            {"EventRateLimit", limits, "limits: Invalid value: null: must not be empty"},
		"type":                 {"EventRateLimit", limits + "limits: [{type: Pod, qps: 5, burst: 9}]", `limits[0].type: Unsupported value: "Pod": supported values: "Namespace", "Server", "SourceAndObject", "User"`},
		"numbers":              {"EventRateLimit", limits + "limits: [{type: User, cacheSize: -1}]", "[limits[0].burst: Invalid value: 0: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]"},
		"no kubeconfig":        {"ImagePolicyWebhook", "imagePolicy: {allowTTL: 5}", "imagePolicy.kubeConfigFile: Required value"},
		"missing kubeconfig":   {"ImagePolicyWebhook", "imagePolicy: {kubeConfigFile: /nowhere}", "no such file"},
		"a long TTL":           {"ImagePolicyWebhook", "imagePolicy: {kubeConfigFile: /nowhere, allowTTL: 1801}", "valid value is between 1s and 30m0s, got 30m1s"},
		"a short TTL":          {"ImagePolicyWebhook", "imagePolicy: {kubeConfigFile: /nowhere, denyTTL: 1}", "valid value is between 1s and 30m0s, got 1s"},
		"a negative backoff":   {"ImagePolicyWebhook", "imagePolicy: {kubeConfigFile: /nowhere, retryBackoff: -2}", "valid value is between 1ns and 5m0s, got -2ms"},
	} {
		_, err := Configure(test.plugin, []byte(test.content))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
