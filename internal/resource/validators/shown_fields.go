package validators

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// shownFields returns the fields of a type that messages show in another order
// than the API has, or without the fields of disabled features. It returns nil
// for all other types.
func shownFields(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[corev1.VolumeSource]():
		return []string{
			"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI",
			"Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker",
			"DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk",
			"Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
		}
	case reflect.TypeFor[corev1.PersistentVolumeSource]():
		return []string{
			"GCEPersistentDisk", "AWSElasticBlockStore", "HostPath", "Glusterfs", "NFS", "RBD", "Quobyte", "ISCSI",
			"FlexVolume", "Cinder", "CephFS", "FC", "Flocker", "AzureFile", "VsphereVolume", "AzureDisk",
			"PhotonPersistentDisk", "PortworxVolume", "ScaleIO", "Local", "StorageOS", "CSI",
		}
	case reflect.TypeFor[corev1.VolumeMount]():
		return []string{
			"Name", "ReadOnly", "RecursiveReadOnly", "MountPath", "SubPath", "MountPropagation", "SubPathExpr",
		}
	case reflect.TypeFor[corev1.EmptyDirVolumeSource]():
		return []string{"Medium", "SizeLimit"}
	case reflect.TypeFor[corev1.HTTPGetAction]():
		return []string{"Path", "Port", "Host", "Scheme", "HTTPHeaders"}
	case reflect.TypeFor[corev1.GRPCAction]():
		return []string{"Port", "Service"}
	case reflect.TypeFor[corev1.SecretVolumeSource]():
		return []string{"SecretName", "Items", "DefaultMode", "Optional"}
	case reflect.TypeFor[corev1.ConfigMapVolumeSource]():
		return []string{"LocalObjectReference", "Items", "DefaultMode", "Optional"}
	case reflect.TypeFor[corev1.DownwardAPIVolumeSource]():
		return []string{"Items", "DefaultMode"}
	case reflect.TypeFor[corev1.ProjectedVolumeSource]():
		return []string{"Sources", "DefaultMode"}
	case reflect.TypeFor[corev1.KeyToPath]():
		return []string{"Key", "Path", "Mode"}
	case reflect.TypeFor[corev1.DownwardAPIVolumeFile]():
		return []string{"Path", "FieldRef", "ResourceFieldRef", "Mode"}
	case reflect.TypeFor[corev1.ServiceAccountTokenProjection]():
		return []string{"Audience", "ExpirationSeconds", "Path"}
	case reflect.TypeFor[corev1.ClusterTrustBundleProjection]():
		return []string{"Name", "SignerName", "LabelSelector", "Optional", "Path"}
	case reflect.TypeFor[corev1.PodCertificateProjection]():
		return []string{
			"SignerName", "KeyType", "MaxExpirationSeconds", "CredentialBundlePath", "KeyPath", "CertificateChainPath",
			"UserAnnotations",
		}
	}
	return nil
}
