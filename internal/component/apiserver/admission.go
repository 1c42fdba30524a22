package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiserver/pkg/apis/apiserver"
	podsecurity "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"
)

// podSecurity is what the file of --admission-control-config-file says about
// the plugin PodSecurity; nil is nothing. Configurations of other plugins are
// refused, as they would have no effect.
func (f *Flags) podSecurity() (*podsecurity.PodSecurityConfiguration, error) {
	if f.AdmissionConfigFile == "" {
		return nil, nil
	}
	content, err := os.ReadFile(f.AdmissionConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	configuration, err := decodeConfiguration[apiserver.AdmissionConfiguration](content)
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file %s: %w", f.AdmissionConfigFile, err)
	}
	var found *podsecurity.PodSecurityConfiguration
	var errs []error
	for _, plugin := range configuration.Plugins {
		raw, err := pluginConfiguration(plugin, filepath.Dir(f.AdmissionConfigFile))
		switch {
		case err != nil:
		case len(raw) == 0:
			continue
		case plugin.Name != "PodSecurity":
			err = errors.New("this plugin takes no configuration here")
		default:
			if found, err = load.LoadFromData(raw); err == nil {
				err = validation.ValidatePodSecurityConfiguration(found).ToAggregate()
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--admission-control-config-file %s: plugin %s: %w", f.AdmissionConfigFile, plugin.Name, err))
		}
	}
	return found, errors.Join(errs...)
}

// pluginConfiguration is a plugin's own part: in the same file, or in another
// whose path may begin at the folder of the first.
func pluginConfiguration(plugin apiserver.AdmissionPluginConfiguration, folder string) ([]byte, error) {
	if plugin.Configuration != nil {
		return plugin.Configuration.Raw, nil
	}
	if plugin.Path == "" {
		return nil, nil
	}
	if !filepath.IsAbs(plugin.Path) {
		return os.ReadFile(filepath.Join(folder, plugin.Path))
	}
	return os.ReadFile(plugin.Path)
}
