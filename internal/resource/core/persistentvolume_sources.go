package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePersistentVolumeSource checks that a volume is one thing, and that
// the thing is described.
func validatePersistentVolumeSource(v *corev1.PersistentVolume, path *field.Path) field.ErrorList {
	s := &v.Spec.PersistentVolumeSource
	// Most sources are the same as those of pods.
	shared := storageVolumeKinds(&corev1.VolumeSource{
		GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore, NFS: s.NFS,
		FC: s.FC, Flocker: s.Flocker, VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte, AzureDisk: s.AzureDisk,
		PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	})
	own := []volumeKind{
		{"hostPath", s.HostPath != nil, func(at *field.Path) field.ErrorList { return validateHostPath(s.HostPath, at) }},
		{"glusterfs", s.Glusterfs != nil, func(at *field.Path) field.ErrorList {
			return append(required(s.Glusterfs.EndpointsName, at.Child("endpoints")), required(s.Glusterfs.Path, at.Child("path"))...)
		}},
		{"rbd", s.RBD != nil, func(at *field.Path) field.ErrorList { return validateRBD(s.RBD.CephMonitors, s.RBD.RBDImage, at) }},
		{"cephFS", s.CephFS != nil, func(at *field.Path) field.ErrorList { return requiredList(s.CephFS.Monitors, at.Child("monitors")) }},
		{"iscsi", s.ISCSI != nil, func(at *field.Path) field.ErrorList {
			errs := validateISCSI(s.ISCSI.TargetPortal, s.ISCSI.IQN, s.ISCSI.Lun, s.ISCSI.InitiatorName, at)
			if (s.ISCSI.DiscoveryCHAPAuth || s.ISCSI.SessionCHAPAuth) && s.ISCSI.SecretRef == nil {
				errs = append(errs, field.Required(at.Child("secretRef"), ""))
			}
			return append(errs, validateSecretReference(s.ISCSI.SecretRef, false, at.Child("secretRef"))...)
		}},
		{"cinder", s.Cinder != nil, func(at *field.Path) field.ErrorList {
			errs := required(s.Cinder.VolumeID, at.Child("volumeID"))
			return append(errs, validateSecretReference(s.Cinder.SecretRef, true, at.Child("secretRef"))...)
		}},
		{"flexVolume", s.FlexVolume != nil, func(at *field.Path) field.ErrorList { return validateFlexDriver(s.FlexVolume.Driver, at) }},
		{"azureFile", s.AzureFile != nil, func(at *field.Path) field.ErrorList {
			errs := append(required(s.AzureFile.SecretName, at.Child("secretName")), required(s.AzureFile.ShareName, at.Child("shareName"))...)
			if s.AzureFile.SecretNamespace != nil && *s.AzureFile.SecretNamespace == "" {
				errs = append(errs, field.Required(at.Child("secretNamespace"), ""))
			}
			return errs
		}},
		{"scaleIO", s.ScaleIO != nil, func(at *field.Path) field.ErrorList {
			errs := required(s.ScaleIO.Gateway, at.Child("gateway"))
			errs = append(errs, required(s.ScaleIO.System, at.Child("system"))...)
			return append(errs, required(s.ScaleIO.VolumeName, at.Child("volumeName"))...)
		}},
		{"local", s.Local != nil, func(at *field.Path) field.ErrorList {
			errs := validateLocalVolume(s.Local, at)
			if v.Spec.NodeAffinity == nil {
				errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
			}
			return errs
		}},
		{"storageos", s.StorageOS != nil, func(at *field.Path) field.ErrorList { return required(s.StorageOS.VolumeName, at.Child("volumeName")) }},
		{"csi", s.CSI != nil, func(at *field.Path) field.ErrorList { return validateCSIVolume(s.CSI, at) }},
	}
	var errs field.ErrorList
	found := 0
	for _, kind := range append(own, shared...) {
		if !kind.set {
			continue
		}
		if found++; found > 1 {
			errs = append(errs, field.Forbidden(path.Child(kind.name), "may not specify more than 1 volume type"))
			continue
		}
		errs = append(errs, kind.validate(path.Child(kind.name))...)
	}
	if found == 0 {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

func validateLocalVolume(l *corev1.LocalVolumeSource, path *field.Path) field.ErrorList {
	if l.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	return validateNoBacksteps(l.Path, path.Child("path"))
}

func validateCSIVolume(c *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := validateCSIDriverName(c.Driver, path.Child("driver"))
	errs = append(errs, required(c.VolumeHandle, path.Child("volumeHandle"))...)
	for _, ref := range []struct {
		name   string
		secret *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef},
		{"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		errs = append(errs, validateSecretReference(ref.secret, true, path.Child(ref.name))...)
	}
	return errs
}

func validateSecretReference(ref *corev1.SecretReference, namespaced bool, path *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	errs := required(ref.Name, path.Child("name"))
	if namespaced {
		errs = append(errs, required(ref.Namespace, path.Child("namespace"))...)
	}
	return errs
}
