package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// validatePersistentVolumeSource checks that a volume has exactly one source,
// and checks the source.
func validatePersistentVolumeSource(v *corev1.PersistentVolume, path *field.Path) field.ErrorList {
	s := &v.Spec.PersistentVolumeSource
	// Most sources are the same as the volume sources of pods.
	shared := StorageKinds(&corev1.VolumeSource{
		GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore, NFS: s.NFS,
		FC: s.FC, Flocker: s.Flocker, VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte, AzureDisk: s.AzureDisk,
		PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	})
	own := []Kind{
		{"hostPath", s.HostPath != nil, func(at *field.Path) field.ErrorList { return ValidateHostPath(s.HostPath, at) }},
		{"glusterfs", s.Glusterfs != nil, func(at *field.Path) field.ErrorList {
			errs := append(validators.Required(at.Child("endpoints"), s.Glusterfs.EndpointsName), validators.Required(at.Child("path"), s.Glusterfs.Path)...)
			return append(errs, validateEndpointsNamespace(s.Glusterfs.EndpointsNamespace, at.Child("endpointsNamespace"))...)
		}},
		{"rbd", s.RBD != nil, func(at *field.Path) field.ErrorList { return validateRBD(s.RBD.CephMonitors, s.RBD.RBDImage, at) }},
		{"cephfs", s.CephFS != nil, func(at *field.Path) field.ErrorList { return requireOne(at.Child("monitors"), s.CephFS.Monitors) }},
		{"iscsi", s.ISCSI != nil, func(at *field.Path) field.ErrorList {
			errs := validateISCSI(s.ISCSI.TargetPortal, s.ISCSI.IQN, s.ISCSI.Lun, s.ISCSI.InitiatorName, "", at)
			if name := v.Name + ":" + s.ISCSI.TargetPortal; s.ISCSI.InitiatorName != nil && len(name) > 64 {
				errs = append(errs, field.Invalid(at.Child("targetportal"), s.ISCSI.TargetPortal,
					"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
			}
			if (s.ISCSI.DiscoveryCHAPAuth || s.ISCSI.SessionCHAPAuth) && s.ISCSI.SecretRef == nil {
				errs = append(errs, field.Required(at.Child("secretRef"), ""))
			}
			return append(errs, validateSecretReference(s.ISCSI.SecretRef, false, at.Child("secretRef"))...)
		}},
		{"cinder", s.Cinder != nil, func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("volumeID"), s.Cinder.VolumeID)
			return append(errs, validateSecretReference(s.Cinder.SecretRef, true, at.Child("secretRef"))...)
		}},
		{"flexVolume", s.FlexVolume != nil, func(at *field.Path) field.ErrorList {
			return validateFlex(s.FlexVolume.Driver, s.FlexVolume.Options, at)
		}},
		{"azureFile", s.AzureFile != nil, func(at *field.Path) field.ErrorList {
			errs := append(validators.Required(at.Child("secretName"), s.AzureFile.SecretName), validators.Required(at.Child("shareName"), s.AzureFile.ShareName)...)
			if s.AzureFile.SecretNamespace != nil && *s.AzureFile.SecretNamespace == "" {
				errs = append(errs, field.Required(at.Child("secretNamespace"), ""))
			}
			return errs
		}},
		{"scaleIO", s.ScaleIO != nil, func(at *field.Path) field.ErrorList {
			errs := validators.Required(at.Child("gateway"), s.ScaleIO.Gateway)
			errs = append(errs, validators.Required(at.Child("system"), s.ScaleIO.System)...)
			return append(errs, validators.Required(at.Child("volumeName"), s.ScaleIO.VolumeName)...)
		}},
		{"local", s.Local != nil, func(at *field.Path) field.ErrorList {
			errs := validateLocalVolume(s.Local, at)
			if v.Spec.NodeAffinity == nil {
				errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
			}
			return errs
		}},
		{"storageos", s.StorageOS != nil, func(at *field.Path) field.ErrorList {
			errs := validateStorageOS(s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace, at)
			if ref := s.StorageOS.SecretRef; ref != nil {
				errs = append(errs, validators.Required(at.Child("secretRef", "name"), ref.Name)...)
				errs = append(errs, validators.Required(at.Child("secretRef", "namespace"), ref.Namespace)...)
			}
			return errs
		}},
		{"csi", s.CSI != nil, func(at *field.Path) field.ErrorList { return validateCSIVolume(s.CSI, at) }},
	}
	for i := range shared {
		if shared[i].Name == "gcePersistentDisk" {
			shared[i].Name = "persistentDisk"
		}
	}
	return ValidateSource(append(own, shared...), path)
}

func validateLocalVolume(l *corev1.LocalVolumeSource, path *field.Path) field.ErrorList {
	if l.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	return validators.NoBacksteps(path.Child("path"), l.Path)
}

func validateCSIVolume(c *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := validateCSIDriverName(c.Driver, path.Child("driver"))
	errs = append(errs, validators.Required(path.Child("volumeHandle"), c.VolumeHandle)...)
	for _, ref := range []struct {
		name   string
		secret *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef},
		{"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		if ref.secret == nil {
			continue
		}
		at := path.Child(ref.name)
		errs = append(errs, validateSecretReference(ref.secret, true, at)...)
		if name := ref.secret.Name; name != "" {
			errs = append(errs, validators.Subdomain(at.Child("name"), name)...)
		}
		if namespace := ref.secret.Namespace; namespace != "" {
			errs = append(errs, validators.Label(at.Child("namespace"), namespace)...)
		}
	}
	return errs
}

func validateEndpointsNamespace(namespace *string, path *field.Path) field.ErrorList {
	if namespace == nil {
		return nil
	}
	if *namespace == "" {
		return field.ErrorList{field.Invalid(path, *namespace, "if the endpointnamespace is set, it must be a valid namespace name")}
	}
	return validators.Label(path, *namespace)
}

func validateSecretReference(ref *corev1.SecretReference, namespaced bool, path *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	errs := validators.Required(path.Child("name"), ref.Name)
	if namespaced {
		errs = append(errs, validators.Required(path.Child("namespace"), ref.Namespace)...)
	}
	return errs
}
