package component

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/kubelet"
)

// merged returns the defaults, overridden by the configuration file, overridden
// by the drop-in files in the order of their paths, overridden by the flags that
// were given. Inside a cluster, the defaults are the values that
// the cluster sets. A null in a file counts as a field that was left out.
func (k *Kubelet) merged() (*kubeletconfig.KubeletConfiguration, error) {
	c := k.Config.Configuration.DeepCopy()
	raw, err := k.files()
	if err != nil || raw == nil {
		return c, err
	}
	file := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(raw, file); err != nil {
		return nil, fmt.Errorf("--config and --config-dir together: %w", err)
	}
	for _, whole := range []struct{ file, all *map[string]string }{ // a map of the file replaces the one before it
		{&file.EvictionHard, &c.EvictionHard}, {&file.EvictionSoft, &c.EvictionSoft}, {&file.EvictionSoftGracePeriod, &c.EvictionSoftGracePeriod},
		{&file.SystemReserved, &c.SystemReserved}, {&file.KubeReserved, &c.KubeReserved},
	} {
		if *whole.file != nil {
			*whole.all = nil
		}
	}
	endpoint := c.ContainerRuntimeEndpoint
	if err := yaml.UnmarshalStrict(raw, c); err != nil {
		return nil, fmt.Errorf("--config and --config-dir together: %w", err)
	}
	if c.ContainerRuntimeEndpoint == "" { // as kubeadm writes it for the default
		c.ContainerRuntimeEndpoint = endpoint
	}
	defaultByOthers(c, file)
	return c, setGiven(c, k.fields)
}

// defaultByOthers sets the fields that the file leaves out and whose defaults follow from
// other fields of it.
func defaultByOthers(c, file *kubeletconfig.KubeletConfiguration) {
	if file.SerializeImagePulls == nil && file.MaxParallelImagePulls != nil {
		c.SerializeImagePulls = new(kubelet.SerializesImagePulls(file.MaxParallelImagePulls))
	}
	switch update := file.NodeStatusUpdateFrequency; {
	case file.NodeStatusReportFrequency.Duration != 0:
	case update.Duration != 0:
		c.NodeStatusReportFrequency = update
	case c.NodeStatusReportFrequency.Duration == 0:
		c.NodeStatusReportFrequency.Duration = kubelet.DefaultReportFrequency
	}
}

// files returns the configuration file with the drop-in files merged into it, as
// JSON without nulls; nil without either. Objects and maps are merged field by
// field. Lists and values replace earlier ones.
func (k *Kubelet) files() ([]byte, error) {
	raw, err := k.filesWithNulls()
	if err != nil || raw == nil {
		return nil, err
	}
	return jsonpatch.MergePatch([]byte("{}"), raw) // a patch removes what is null in it
}

func (k *Kubelet) filesWithNulls() ([]byte, error) {
	var merged []byte
	if k.ConfigFile != "" {
		var err error
		if merged, err = configurationFile("--config", k.ConfigFile); err != nil {
			return nil, err
		}
	}
	if k.ConfigDirectory == "" {
		return merged, nil
	}
	err := filepath.WalkDir(k.ConfigDirectory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("--config-dir: %w", err)
		}
		if entry.IsDir() || filepath.Ext(path) != ".conf" {
			return nil
		}
		one, err := configurationFile("--config-dir", path)
		if err != nil {
			return err
		}
		if merged == nil {
			merged = one
			return nil
		}
		merged, err = jsonpatch.MergePatch(merged, one)
		return err
	})
	return merged, err
}

// maxConfigurationFile is the size of the largest configuration file in bytes.
const maxConfigurationFile = 1 << 20

// configurationFile reads a KubeletConfiguration and returns it as JSON.
func configurationFile(flag, path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(raw) > maxConfigurationFile {
		return nil, fmt.Errorf("%s=%s: the file is larger than 1 MiB", flag, path)
	}
	one := &kubeletconfig.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict(raw, one); err != nil {
		return nil, fmt.Errorf("%s=%s: %w", flag, path, err)
	}
	if version := kubeletconfig.SchemeGroupVersion.String(); one.APIVersion != version || one.Kind != "KubeletConfiguration" {
		return nil, fmt.Errorf("%s=%s: want apiVersion: %s and kind: KubeletConfiguration, got %q and %q", flag, path, version, one.APIVersion, one.Kind)
	}
	return yaml.YAMLToJSON(raw)
}
