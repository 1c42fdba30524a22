package admission

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"sigs.k8s.io/yaml"
)

// Configuration is the configuration of one plugin.
type Configuration struct {
	raw []byte // of a plugin for webhooks or policies
	// manifests is the directory of objects that a plugin for webhooks or policies
	// obeys besides the stored ones (staticManifestsDir, KEP-5793), or "".
	manifests string

	limited       []resourcequotaapi.LimitedResource // of ResourceQuota
	nodeSelectors map[string]labels.Set              // of PodNodeSelector, by namespace
	tolerations   tolerationConfiguration            // of PodTolerationRestriction
	eventLimits   []eventLimit                       // of EventRateLimit
	imagePolicy   *imagePolicy                       // of ImagePolicyWebhook
}

// Configure checks the configuration of a plugin in --admission-control-config-file,
// in YAML or JSON, and what it refers to. nil stands for a plugin that is enabled
// without a configuration, which not all can be.
func Configure(plugin string, raw []byte) (c Configuration, err error) {
	switch plugin {
	case "ResourceQuota":
		c.limited, err = readLimitedResources(raw)
	case "PodNodeSelector":
		c.nodeSelectors, err = readNodeSelectors(raw)
	case "PodTolerationRestriction":
		c.tolerations, err = readTolerations(raw)
	case "EventRateLimit":
		c.eventLimits, err = readEventLimits(raw)
	case "ImagePolicyWebhook":
		c.imagePolicy, err = readImagePolicy(raw)
	default:
		return configureExtension(plugin, raw)
	}
	return c, err
}

// decodeTyped decodes a configuration of the kind Configuration, and refuses
// unknown fields. typed is the TypeMeta in into.
func decodeTyped(raw []byte, want schema.GroupVersion, typed *metav1.TypeMeta, into any) error {
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		return err
	}
	if typed.Kind != "Configuration" || typed.APIVersion != want.String() {
		return fmt.Errorf("it is of kind %q in version %q: want a Configuration in version %s", typed.Kind, typed.APIVersion, want)
	}
	return nil
}
