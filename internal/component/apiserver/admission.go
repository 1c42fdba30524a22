package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	podsecurity "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/validation"

	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// AdmissionOptions say which admission plugins run, and how.
type AdmissionOptions struct {
	Enable     []string // plugins besides the default ones
	Disable    []string
	ConfigFile string // of an AdmissionConfiguration, or empty

	// AllowPrivileged allows privileged containers in pods and templates. It is
	// true by default, unlike upstream's.
	AllowPrivileged bool

	// How long pods stay on nodes that are not ready or unreachable, in seconds,
	// unless they say so.
	NotReadySeconds    int64
	UnreachableSeconds int64
}

func (o *AdmissionOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Enable, "enable-admission-plugins", o.Enable, "admission plugins to run besides the default ones")
	fs.StringSliceVar(&o.Disable, "disable-admission-plugins", o.Disable, "default admission plugins not to run")
	fs.StringVar(&o.ConfigFile, "admission-control-config-file", o.ConfigFile, "AdmissionConfiguration of the plugins PodSecurity, ResourceQuota, PodNodeSelector, PodTolerationRestriction, EventRateLimit, ImagePolicyWebhook, {Mutating,Validating}AdmissionWebhook and {Mutating,Validating}AdmissionPolicy; the latter four may have a kubeConfigFile or a staticManifestsDir")
	fs.BoolVar(&o.AllowPrivileged, "allow-privileged", o.AllowPrivileged, "allow privileged containers in pods and in templates of pods")
	fs.Int64Var(&o.NotReadySeconds, "default-not-ready-toleration-seconds", o.NotReadySeconds, "how long pods stay on nodes that are not ready, unless they tolerate that for another time")
	fs.Int64Var(&o.UnreachableSeconds, "default-unreachable-toleration-seconds", o.UnreachableSeconds, "how long pods stay on nodes that are unreachable, unless they tolerate that for another time")
	flagvalue.Is(fs, flagvalue.File, "admission-control-config-file")
}

func (o *AdmissionOptions) validate() []error {
	if err := admission.Check(o.Enable, o.Disable); err != nil {
		return []error{err}
	}
	return nil
}

// configurations returns the configuration of the plugin PodSecurity in the file of
// --admission-control-config-file, or nil, and those of other plugins. It refuses
// configurations of plugins that take none, because they would have no effect.
func (o *AdmissionOptions) configurations() (*podsecurity.PodSecurityConfiguration, map[string]admission.Configuration, error) {
	if o.ConfigFile == "" {
		return nil, nil, nil
	}
	content, err := os.ReadFile(o.ConfigFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	configuration, err := decodeConfiguration[apiserver.AdmissionConfiguration](content)
	if err != nil {
		return nil, nil, fmt.Errorf("--admission-control-config-file %s: %w", o.ConfigFile, err)
	}
	var found *podsecurity.PodSecurityConfiguration
	others := map[string]admission.Configuration{}
	var errs []error
	for _, plugin := range configuration.Plugins {
		raw, err := pluginConfiguration(plugin, filepath.Dir(o.ConfigFile))
		switch {
		case err != nil:
		case len(raw) == 0:
			continue
		case plugin.Name != "PodSecurity":
			others[plugin.Name], err = admission.Configure(plugin.Name, raw)
		default:
			if found, err = load.LoadFromData(raw); err == nil {
				err = validation.ValidatePodSecurityConfiguration(found).ToAggregate()
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--admission-control-config-file %s: plugin %s: %w", o.ConfigFile, plugin.Name, err))
		}
	}
	return found, others, errors.Join(errs...)
}

// pluginConfiguration returns a plugin's configuration, from the same file or
// from another one, whose path may be relative to folder.
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
