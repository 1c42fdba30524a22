package core

import (
	"bytes"
	"encoding/json"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"
)

// Clients know from upstream two kinds of messages that show objects in the
// form they have in the server's memory: by Go names, with every field, in an
// order of its own. changes and internal write them.

// changes shows how is differs from was, as a unified diff.
func changes(was, is any) string {
	return diff.Diff(internal{was}, internal{is})
}

// internal is a value of the API that encodes in the server's own form.
type internal struct{ value any }

func (u internal) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := writeInternal(&out, reflect.ValueOf(u.value))
	return out.Bytes(), err
}

const apiPackage = "k8s.io/api/core/v1"

// internalFields are the fields of the types whose order in memory is not
// that of the API, or which have fields of features that are off.
var internalFields = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PodSpec](): {
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName",
		"AutomountServiceAccountToken", "NodeName", "SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain",
		"SetHostnameAsFQDN", "Affinity", "SchedulerName", "Tolerations", "HostAliases", "PriorityClassName", "Priority",
		"PreemptionPolicy", "DNSConfig", "ReadinessGates", "RuntimeClassName", "Overhead", "EnableServiceLinks",
		"TopologySpreadConstraints", "OS", "SchedulingGates", "ResourceClaims", "Resources", "HostnameOverride",
		"SchedulingGroup",
	},
	reflect.TypeFor[internalSecurityContext](): {
		"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers", "SELinuxOptions", "WindowsOptions",
		"RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups", "SupplementalGroupsPolicy", "FSGroup",
		"FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile", "SELinuxChangePolicy",
	},
	reflect.TypeFor[corev1.VolumeSource](): {
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI",
		"Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker",
		"DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk",
		"Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
	},
	reflect.TypeFor[corev1.PersistentVolumeSource](): {
		"GCEPersistentDisk", "AWSElasticBlockStore", "HostPath", "Glusterfs", "NFS", "RBD", "Quobyte", "ISCSI",
		"FlexVolume", "Cinder", "CephFS", "FC", "Flocker", "AzureFile", "VsphereVolume", "AzureDisk",
		"PhotonPersistentDisk", "PortworxVolume", "ScaleIO", "Local", "StorageOS", "CSI",
	},
	reflect.TypeFor[corev1.VolumeMount](): {
		"Name", "ReadOnly", "RecursiveReadOnly", "MountPath", "SubPath", "MountPropagation", "SubPathExpr",
	},
	reflect.TypeFor[corev1.EmptyDirVolumeSource]():          {"Medium", "SizeLimit"},
	reflect.TypeFor[corev1.HTTPGetAction]():                 {"Path", "Port", "Host", "Scheme", "HTTPHeaders"},
	reflect.TypeFor[corev1.GRPCAction]():                    {"Port", "Service"},
	reflect.TypeFor[corev1.SecretVolumeSource]():            {"SecretName", "Items", "DefaultMode", "Optional"},
	reflect.TypeFor[corev1.ConfigMapVolumeSource]():         {"LocalObjectReference", "Items", "DefaultMode", "Optional"},
	reflect.TypeFor[corev1.DownwardAPIVolumeSource]():       {"Items", "DefaultMode"},
	reflect.TypeFor[corev1.ProjectedVolumeSource]():         {"Sources", "DefaultMode"},
	reflect.TypeFor[corev1.KeyToPath]():                     {"Key", "Path", "Mode"},
	reflect.TypeFor[corev1.DownwardAPIVolumeFile]():         {"Path", "FieldRef", "ResourceFieldRef", "Mode"},
	reflect.TypeFor[corev1.ServiceAccountTokenProjection](): {"Audience", "ExpirationSeconds", "Path"},
	reflect.TypeFor[corev1.ClusterTrustBundleProjection]():  {"Name", "SignerName", "LabelSelector", "Optional", "Path"},
}

// internalSecurityContext is the pod's security context in memory: what the
// pod shares with the host is part of it.
type internalSecurityContext struct {
	HostNetwork, HostPID, HostIPC    bool
	ShareProcessNamespace, HostUsers *bool
	corev1.PodSecurityContext
}

func writeInternal(out *bytes.Buffer, v reflect.Value) error {
	switch {
	case !v.IsValid(), (v.Kind() == reflect.Pointer || v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.IsNil():
		out.WriteString("null")
		return nil
	case v.Kind() == reflect.Pointer:
		return writeInternal(out, v.Elem())
	case v.Kind() == reflect.Struct && (v.Type().PkgPath() == apiPackage || internalFields[v.Type()] != nil):
		out.WriteByte('{')
		w := fieldWriter{out: out}
		err := w.writeFields(v)
		out.WriteByte('}')
		return err
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		out.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeInternal(out, v.Index(i)); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	}
	encoded, err := json.Marshal(v.Interface())
	out.Write(encoded)
	return err
}

// fieldWriter writes the fields of one object, those of embedded structs among
// them.
type fieldWriter struct {
	out   *bytes.Buffer
	wrote bool
}

func (w *fieldWriter) writeFields(v reflect.Value) error {
	names := internalFields[v.Type()]
	if names == nil {
		for i := range v.NumField() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	for _, name := range names {
		f, _ := v.Type().FieldByName(name)
		value := v.FieldByName(name)
		if spec, ok := v.Interface().(corev1.PodSpec); ok && name == "SecurityContext" {
			value = reflect.ValueOf(securityContextOf(&spec))
		}
		if err := w.writeField(f, value); err != nil {
			return err
		}
	}
	return nil
}

func (w *fieldWriter) writeField(f reflect.StructField, value reflect.Value) error {
	if f.Anonymous && f.Type.PkgPath() == apiPackage {
		return w.writeFields(value)
	}
	if f.Anonymous {
		// Embedded metadata has tags also in memory.
		encoded, err := json.Marshal(value.Interface())
		if inner := bytes.TrimSuffix(bytes.TrimPrefix(encoded, []byte("{")), []byte("}")); len(inner) > 0 {
			w.separate()
			w.out.Write(inner)
		}
		return err
	}
	w.separate()
	w.out.WriteString(`"` + f.Name + `":`)
	return writeInternal(w.out, value)
}

func (w *fieldWriter) separate() {
	if w.wrote {
		w.out.WriteByte(',')
	}
	w.wrote = true
}

func securityContextOf(spec *corev1.PodSpec) *internalSecurityContext {
	if spec.SecurityContext == nil {
		return nil
	}
	return &internalSecurityContext{
		HostNetwork: spec.HostNetwork, HostPID: spec.HostPID, HostIPC: spec.HostIPC,
		ShareProcessNamespace: spec.ShareProcessNamespace, HostUsers: spec.HostUsers,
		PodSecurityContext: *spec.SecurityContext,
	}
}
