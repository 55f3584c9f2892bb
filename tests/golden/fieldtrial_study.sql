BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002_idempotency');
CREATE TABLE arm (
	id VARCHAR(36) NOT NULL, 
	study_id VARCHAR(36) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	blind_code VARCHAR(8) NOT NULL, 
	label TEXT, 
	runner VARCHAR(32) NOT NULL, 
	policy_ref JSON NOT NULL, 
	serving JSON NOT NULL, 
	policy_fingerprint VARCHAR(128), 
	PRIMARY KEY (id), 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	UNIQUE (study_id, blind_code), 
	UNIQUE (study_id, "key")
);
INSERT INTO "arm" VALUES('01a22903-2821-7d17-bb6c-5d8edae7ce5a','01a22903-280c-753d-b024-1156cb745b73','baseline','A3','queue 30','sim','{"sim_success_rate": 0.5}','{"queue": 30}',NULL);
INSERT INTO "arm" VALUES('01a22903-2822-708a-be35-21f4ca4fb7e2','01a22903-280c-753d-b024-1156cb745b73','q50','C7','queue 50','sim','{"sim_success_rate": 0.7}','{"queue": 50}',NULL);
CREATE TABLE condition (
	id VARCHAR(36) NOT NULL, 
	study_id VARCHAR(36) NOT NULL, 
	"key" VARCHAR(512) NOT NULL, 
	factors JSON NOT NULL, 
	position INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(study_id) REFERENCES study (id), 
	UNIQUE (study_id, "key")
);
INSERT INTO "condition" VALUES('01a22903-2822-76ed-a88c-a0dda0370327','01a22903-280c-753d-b024-1156cb745b73','slot=1,light=day','{"slot": 1, "light": "day"}',0);
INSERT INTO "condition" VALUES('01a22903-2823-7961-bf82-2977f4a7250f','01a22903-280c-753d-b024-1156cb745b73','slot=1,light=night','{"slot": 1, "light": "night"}',1);
INSERT INTO "condition" VALUES('01a22903-2823-75fd-b50b-d6dfefebf0dc','01a22903-280c-753d-b024-1156cb745b73','slot=2,light=day','{"slot": 2, "light": "day"}',2);
INSERT INTO "condition" VALUES('01a22903-2823-759f-8370-af1cd0927732','01a22903-280c-753d-b024-1156cb745b73','slot=2,light=night','{"slot": 2, "light": "night"}',3);
INSERT INTO "condition" VALUES('01a22903-2823-7b2c-878b-76e7f028306a','01a22903-280c-753d-b024-1156cb745b73','slot=3,light=day','{"slot": 3, "light": "day"}',4);
INSERT INTO "condition" VALUES('01a22903-2823-7d96-9721-4f05fcf6910e','01a22903-280c-753d-b024-1156cb745b73','slot=3,light=night','{"slot": 3, "light": "night"}',5);
INSERT INTO "condition" VALUES('01a22903-2824-7800-ae9b-b6840cbb65c3','01a22903-280c-753d-b024-1156cb745b73','slot=4,light=day','{"slot": 4, "light": "day"}',6);
INSERT INTO "condition" VALUES('01a22903-283a-77ff-9744-1a10f18a41f8','01a22903-280c-753d-b024-1156cb745b73','slot=4,light=night','{"slot": 4, "light": "night"}',7);
INSERT INTO "condition" VALUES('01a22903-283a-7989-9917-3f9c7f2063b1','01a22903-280c-753d-b024-1156cb745b73','slot=5,light=day','{"slot": 5, "light": "day"}',8);
INSERT INTO "condition" VALUES('01a22903-283b-74bd-8cc2-3098a4cd3a0b','01a22903-280c-753d-b024-1156cb745b73','slot=5,light=night','{"slot": 5, "light": "night"}',9);
CREATE TABLE event (
	id VARCHAR(36) NOT NULL, 
	study_id VARCHAR(36) NOT NULL, 
	ts DATETIME NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	actor VARCHAR(128) NOT NULL, 
	payload JSON NOT NULL, idempotency_key VARCHAR(64), 
	PRIMARY KEY (id), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "event" VALUES('01a22903-284c-77c2-bfe3-65f4b3791cc1','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:22.508404','design_locked','fieldtrial','{"design_hash": "217e443f45a6120bb87152f6480f1b406c4c5ad9de963a7cc2b61f047dc18edd", "slots": 20, "seed": 7}',NULL);
INSERT INTO "event" VALUES('01a22903-29fe-71ec-ba05-ad02839f3a68','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:22.942336','session_started','sim-operator','{"session_id": "01a22903-29fd-7e20-8c2c-81da86661237", "rig": "sim-rig", "result": {"session_id": "01a22903-29fd-7e20-8c2c-81da86661237"}}',NULL);
INSERT INTO "event" VALUES('01a22903-2a5a-70f2-b8d4-202b5951bd05','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.034170','trial_recorded','sim-operator','{"trial_id": "01a22903-2a49-78e1-ba9f-43a6751d30d7", "seq": 1, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2a49-78e1-ba9f-43a6751d30d7", "slot_id": "01a22903-284d-7479-a1ae-8dccda9f743c", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2a9f-784c-9443-8f7516809a5f','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.103290','trial_recorded','sim-operator','{"trial_id": "01a22903-2a8e-754d-9a9c-9bac5a739db2", "seq": 2, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2a8e-754d-9a9c-9bac5a739db2", "slot_id": "01a22903-284d-7870-86de-0760245939b8", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2aca-7765-a939-8c1e7f9ee46e','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.146364','trial_recorded','sim-operator','{"trial_id": "01a22903-2ac9-753c-8008-9ed3c829a01f", "seq": 3, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2ac9-753c-8008-9ed3c829a01f", "slot_id": "01a22903-284d-7ab0-88a9-edea103f23e8", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2af7-710c-84b7-39a2ed95ff7b','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.192018','trial_recorded','sim-operator','{"trial_id": "01a22903-2af6-73e6-9a15-8a83d686af6d", "seq": 4, "source": "sim", "success": false, "result": {"trial_id": "01a22903-2af6-73e6-9a15-8a83d686af6d", "slot_id": "01a22903-284d-7777-bd36-4a7ab3b3e859", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2b36-7439-92aa-dba1c93f6eb5','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.254654','trial_recorded','sim-operator','{"trial_id": "01a22903-2b35-7439-ade5-11c85948a61c", "seq": 5, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2b35-7439-ade5-11c85948a61c", "slot_id": "01a22903-284d-78fa-afb2-d9d2977976c3", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2b5f-764a-bc32-25b85894c1e9','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.295233','trial_recorded','sim-operator','{"trial_id": "01a22903-2b5d-751b-8b90-6f1bf7dd91e6", "seq": 6, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2b5d-751b-8b90-6f1bf7dd91e6", "slot_id": "01a22903-284d-7e6e-9eea-2a756300e3ec", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2b7e-707a-8991-e48eb3fefa02','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.326099','trial_recorded','sim-operator','{"trial_id": "01a22903-2b74-7372-bb37-9a8b89004891", "seq": 7, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2b74-7372-bb37-9a8b89004891", "slot_id": "01a22903-284d-7e51-8b54-f24c5f847e03", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2b9a-7aa0-b22d-eb70d17d597d','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.354747','trial_recorded','sim-operator','{"trial_id": "01a22903-2b99-7de4-9ea5-e7afe47f156e", "seq": 8, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2b99-7de4-9ea5-e7afe47f156e", "slot_id": "01a22903-284d-77ee-90e3-bd44b6ff2137", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2bd1-75d6-b526-bc522d3ef056','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.409800','trial_recorded','sim-operator','{"trial_id": "01a22903-2bc3-78ae-a014-a12ad67c333e", "seq": 9, "source": "sim", "success": false, "result": {"trial_id": "01a22903-2bc3-78ae-a014-a12ad67c333e", "slot_id": "01a22903-284d-7a16-9c60-1a137e2716df", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2bf3-7de4-b2ec-df873af3db14','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.443422','trial_recorded','sim-operator','{"trial_id": "01a22903-2bf2-737e-b6a0-eccae6e4b1ae", "seq": 10, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2bf2-737e-b6a0-eccae6e4b1ae", "slot_id": "01a22903-284d-7e01-9626-93bdcddce07f", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2c1f-7bba-97ea-418ec0595cef','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.487839','trial_recorded','sim-operator','{"trial_id": "01a22903-2c0b-7bb5-88a1-ab7b87743e32", "seq": 11, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2c0b-7bb5-88a1-ab7b87743e32", "slot_id": "01a22903-284d-77a8-b0fc-8ef4ebfd2f27", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2c59-7d5a-8181-2e9c8f872608','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.545364','trial_recorded','sim-operator','{"trial_id": "01a22903-2c3f-72fc-b878-09b848166a1f", "seq": 12, "source": "sim", "success": false, "result": {"trial_id": "01a22903-2c3f-72fc-b878-09b848166a1f", "slot_id": "01a22903-284d-7e65-afc7-932ebf19d540", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2c68-718e-a104-fc7fe36b6abf','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.560660','session_ended','sim-operator','{"session_id": "01a22903-29fd-7e20-8c2c-81da86661237", "result": {}}',NULL);
INSERT INTO "event" VALUES('01a22903-2c71-778c-8379-20ca1b29e321','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.569135','session_started','sim-operator','{"session_id": "01a22903-2c70-76b2-ac0e-acd5411e1c9a", "rig": "sim-rig", "result": {"session_id": "01a22903-2c70-76b2-ac0e-acd5411e1c9a"}}',NULL);
INSERT INTO "event" VALUES('01a22903-2cb6-7784-a164-b2a9e4fcc681','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.638907','trial_recorded','sim-operator','{"trial_id": "01a22903-2c87-7efe-b695-12aedf3fc733", "seq": 13, "source": "sim", "replacement_seq": 15, "replacement_slot_id": "01a22903-2cb5-7e87-85e4-f7a057236052", "reason": "simulated robot fault", "result": {"trial_id": "01a22903-2c87-7efe-b695-12aedf3fc733", "slot_id": "01a22903-284d-70c6-a7ac-27639e2ce847", "status": "invalid", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2cf1-7b36-804a-caf6194f736d','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.697718','trial_recorded','sim-operator','{"trial_id": "01a22903-2cee-7481-a8f1-0b4368c7e015", "seq": 14, "source": "sim", "success": false, "result": {"trial_id": "01a22903-2cee-7481-a8f1-0b4368c7e015", "slot_id": "01a22903-284d-77ad-b98b-60461975a378", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2d1c-7a36-b6ab-a9acadbc51fe','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.740484','trial_recorded','sim-operator','{"trial_id": "01a22903-2d0a-79d3-8e58-83a600d62fc5", "seq": 15, "source": "sim", "success": false, "result": {"trial_id": "01a22903-2d0a-79d3-8e58-83a600d62fc5", "slot_id": "01a22903-2cb5-7e87-85e4-f7a057236052", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2d3f-7a9c-994d-a47f56c54a91','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.775909','trial_recorded','sim-operator','{"trial_id": "01a22903-2d3e-7465-83ab-cd71510e9e89", "seq": 16, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2d3e-7465-83ab-cd71510e9e89", "slot_id": "01a22903-284d-7a9e-aa89-a94f188ca1b7", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2d8c-72fb-bb09-ee980a532dc6','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.852917','trial_recorded','sim-operator','{"trial_id": "01a22903-2d73-737e-ab0c-9e39b04c38ce", "seq": 17, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2d73-737e-ab0c-9e39b04c38ce", "slot_id": "01a22903-284d-75ab-a57d-2a617a88eda9", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2dd0-7fe6-bd3f-3fede75de219','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:23.920871','trial_recorded','sim-operator','{"trial_id": "01a22903-2dbc-731c-bba3-735c807f77b0", "seq": 18, "source": "sim", "success": false, "result": {"trial_id": "01a22903-2dbc-731c-bba3-735c807f77b0", "slot_id": "01a22903-284d-704b-8ea3-13ac8685f226", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2e22-7d62-bde9-ac0fa7755d8f','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:24.002476','trial_recorded','sim-operator','{"trial_id": "01a22903-2e12-7d4a-9529-2efd9fe4737d", "seq": 19, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2e12-7d4a-9529-2efd9fe4737d", "slot_id": "01a22903-284d-7a8c-b41e-17cb7900c68e", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2e74-710c-b933-83b220f15560','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:24.084705','trial_recorded','sim-operator','{"trial_id": "01a22903-2e62-7177-a02a-a59b94d2ed24", "seq": 20, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2e62-7177-a02a-a59b94d2ed24", "slot_id": "01a22903-284d-700c-b657-673d98777e22", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2eae-7a0c-9a86-f0e2c331eab9','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:24.142171','trial_recorded','sim-operator','{"trial_id": "01a22903-2ea0-7611-bb73-bbbdfe1a7a5e", "seq": 21, "source": "sim", "replacement_seq": 22, "replacement_slot_id": "01a22903-2ea2-7c84-84fa-9d17f4ca1f85", "reason": "simulated robot fault", "result": {"trial_id": "01a22903-2ea0-7611-bb73-bbbdfe1a7a5e", "slot_id": "01a22903-284d-7f4d-8d50-d052635f525b", "status": "invalid", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2ef8-7fe6-99cf-33b1f8080f1c','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:24.216960','trial_recorded','sim-operator','{"trial_id": "01a22903-2ee5-7c95-b1e0-3a238deaa97d", "seq": 22, "source": "sim", "success": true, "result": {"trial_id": "01a22903-2ee5-7c95-b1e0-3a238deaa97d", "slot_id": "01a22903-2ea2-7c84-84fa-9d17f4ca1f85", "status": "completed", "attempt": 1, "version": 1}}',NULL);
INSERT INTO "event" VALUES('01a22903-2f0b-7e66-b5dd-2df909c7b535','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:24.235903','session_ended','sim-operator','{"session_id": "01a22903-2c70-76b2-ac0e-acd5411e1c9a", "result": {}}',NULL);
INSERT INTO "event" VALUES('01a22903-3092-7a17-946c-88841aa6e979','01a22903-280c-753d-b024-1156cb745b73','2026-11-29 20:33:24.626369','unblinded','fieldtrial','{"pending_slots": 0, "repeat": false}',NULL);
CREATE TABLE schedule_slot (
	id VARCHAR(36) NOT NULL, 
	study_id VARCHAR(36) NOT NULL, 
	seq INTEGER NOT NULL, 
	block INTEGER NOT NULL, 
	replicate INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	condition_id VARCHAR(36) NOT NULL, 
	arm_id VARCHAR(36) NOT NULL, 
	origin VARCHAR(16) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(arm_id) REFERENCES arm (id), 
	FOREIGN KEY(condition_id) REFERENCES condition (id), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7479-a1ae-8dccda9f743c','01a22903-280c-753d-b024-1156cb745b73',1,1,1,1,'01a22903-2823-7d96-9721-4f05fcf6910e','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7870-86de-0760245939b8','01a22903-280c-753d-b024-1156cb745b73',2,1,1,2,'01a22903-2823-7d96-9721-4f05fcf6910e','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7ab0-88a9-edea103f23e8','01a22903-280c-753d-b024-1156cb745b73',3,2,1,1,'01a22903-2823-7b2c-878b-76e7f028306a','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7777-bd36-4a7ab3b3e859','01a22903-280c-753d-b024-1156cb745b73',4,2,1,2,'01a22903-2823-7b2c-878b-76e7f028306a','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-78fa-afb2-d9d2977976c3','01a22903-280c-753d-b024-1156cb745b73',5,3,1,1,'01a22903-2823-7961-bf82-2977f4a7250f','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7e6e-9eea-2a756300e3ec','01a22903-280c-753d-b024-1156cb745b73',6,3,1,2,'01a22903-2823-7961-bf82-2977f4a7250f','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7e51-8b54-f24c5f847e03','01a22903-280c-753d-b024-1156cb745b73',7,4,1,1,'01a22903-283a-7989-9917-3f9c7f2063b1','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-77ee-90e3-bd44b6ff2137','01a22903-280c-753d-b024-1156cb745b73',8,4,1,2,'01a22903-283a-7989-9917-3f9c7f2063b1','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7a16-9c60-1a137e2716df','01a22903-280c-753d-b024-1156cb745b73',9,5,1,1,'01a22903-283b-74bd-8cc2-3098a4cd3a0b','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7e01-9626-93bdcddce07f','01a22903-280c-753d-b024-1156cb745b73',10,5,1,2,'01a22903-283b-74bd-8cc2-3098a4cd3a0b','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-77a8-b0fc-8ef4ebfd2f27','01a22903-280c-753d-b024-1156cb745b73',11,6,1,1,'01a22903-2822-76ed-a88c-a0dda0370327','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7e65-afc7-932ebf19d540','01a22903-280c-753d-b024-1156cb745b73',12,6,1,2,'01a22903-2822-76ed-a88c-a0dda0370327','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-70c6-a7ac-27639e2ce847','01a22903-280c-753d-b024-1156cb745b73',13,7,1,1,'01a22903-2824-7800-ae9b-b6840cbb65c3','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','void');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-77ad-b98b-60461975a378','01a22903-280c-753d-b024-1156cb745b73',14,7,1,2,'01a22903-2824-7800-ae9b-b6840cbb65c3','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7a9e-aa89-a94f188ca1b7','01a22903-280c-753d-b024-1156cb745b73',16,8,1,1,'01a22903-2823-75fd-b50b-d6dfefebf0dc','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-75ab-a57d-2a617a88eda9','01a22903-280c-753d-b024-1156cb745b73',17,8,1,2,'01a22903-2823-75fd-b50b-d6dfefebf0dc','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-704b-8ea3-13ac8685f226','01a22903-280c-753d-b024-1156cb745b73',18,9,1,1,'01a22903-2823-759f-8370-af1cd0927732','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7a8c-b41e-17cb7900c68e','01a22903-280c-753d-b024-1156cb745b73',19,9,1,2,'01a22903-2823-759f-8370-af1cd0927732','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-700c-b657-673d98777e22','01a22903-280c-753d-b024-1156cb745b73',20,10,1,1,'01a22903-283a-77ff-9744-1a10f18a41f8','01a22903-2821-7d17-bb6c-5d8edae7ce5a','planned','done');
INSERT INTO "schedule_slot" VALUES('01a22903-284d-7f4d-8d50-d052635f525b','01a22903-280c-753d-b024-1156cb745b73',21,10,1,2,'01a22903-283a-77ff-9744-1a10f18a41f8','01a22903-2822-708a-be35-21f4ca4fb7e2','planned','void');
INSERT INTO "schedule_slot" VALUES('01a22903-2cb5-7e87-85e4-f7a057236052','01a22903-280c-753d-b024-1156cb745b73',15,7,1,1,'01a22903-2824-7800-ae9b-b6840cbb65c3','01a22903-2822-708a-be35-21f4ca4fb7e2','rescheduled','done');
INSERT INTO "schedule_slot" VALUES('01a22903-2ea2-7c84-84fa-9d17f4ca1f85','01a22903-280c-753d-b024-1156cb745b73',22,10,1,2,'01a22903-283a-77ff-9744-1a10f18a41f8','01a22903-2822-708a-be35-21f4ca4fb7e2','rescheduled','done');
CREATE TABLE session (
	id VARCHAR(36) NOT NULL, 
	study_id VARCHAR(36) NOT NULL, 
	operator VARCHAR(128) NOT NULL, 
	rig VARCHAR(128) NOT NULL, 
	started_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	rig_check JSON NOT NULL, 
	environment JSON NOT NULL, 
	software JSON NOT NULL, 
	notes TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "session" VALUES('01a22903-29fd-7e20-8c2c-81da86661237','01a22903-280c-753d-b024-1156cb745b73','sim-operator','sim-rig','2026-11-29 18:27:37.669922','2026-11-29 18:35:55.679922','{}','{}','{"runner": "sim", "seed": "3"}',NULL);
INSERT INTO "session" VALUES('01a22903-2c70-76b2-ac0e-acd5411e1c9a','01a22903-280c-753d-b024-1156cb745b73','sim-operator','sim-rig','2026-11-29 19:05:55.679922','2026-11-29 19:12:48.989922','{}','{}','{"runner": "sim", "seed": "3"}',NULL);
CREATE TABLE study (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	title TEXT, 
	design_yaml TEXT NOT NULL, 
	design_hash VARCHAR(64) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	created_at DATETIME NOT NULL, 
	locked_at DATETIME, 
	unblinded_at DATETIME, 
	closed_at DATETIME, 
	fieldtrial_version VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "study" VALUES('01a22903-280c-753d-b024-1156cb745b73','cups','Cups on a rack','fieldtrial: 1
name: cups
title: Cups on a rack
task: {instruction: put the cup on the rack, description: two policies}
rubric:
  stages:
    - {id: near, label: near the cup}
    - {id: held, label: cup held}
    - {id: done, label: cup on the rack}
  success: done
  failure_tags: [dropped, missed]
  rig_checklist: [camera is clean]
limits: {timeout_s: 45, no_progress_s: 20}
arms:
  - {id: baseline, label: queue 30, runner: sim, policy: {sim_success_rate: 0.5}, serving: {queue: 30}}
  - {id: q50, label: queue 50, runner: sim, policy: {sim_success_rate: 0.7}, serving: {queue: 50}}
conditions:
  factors:
    slot: {range: [1, 5]}
    light: {values: [day, night]}
design: {type: randomized_block, order: random, blinding: operator, seed: 7}
analysis:
  primary:
    comparison: {treatment: q50, control: baseline}
  secondary: [stage_reached, time_to_success]
','217e443f45a6120bb87152f6480f1b406c4c5ad9de963a7cc2b61f047dc18edd','running','2026-11-29 20:33:22.444108','2026-11-29 20:33:22.414811','2026-11-29 20:33:24.625240',NULL,'0.3.0');
CREATE TABLE trial (
	id VARCHAR(36) NOT NULL, 
	study_id VARCHAR(36) NOT NULL, 
	slot_id VARCHAR(36) NOT NULL, 
	session_id VARCHAR(36) NOT NULL, 
	attempt INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	started_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	duration_s DOUBLE, 
	stage_index INTEGER, 
	success BOOLEAN, 
	termination VARCHAR(32), 
	failure_tags JSON NOT NULL, 
	notes TEXT, 
	invalid_reason TEXT, 
	media JSON NOT NULL, 
	auto_labels JSON NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(session_id) REFERENCES session (id), 
	FOREIGN KEY(slot_id) REFERENCES schedule_slot (id), 
	FOREIGN KEY(study_id) REFERENCES study (id)
);
INSERT INTO "trial" VALUES('01a22903-2a49-78e1-ba9f-43a6751d30d7','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7479-a1ae-8dccda9f743c','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:27:37.669922','2026-11-29 18:27:54.259922',16.59,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2a8e-754d-9a9c-9bac5a739db2','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7870-86de-0760245939b8','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:28:14.259922','2026-11-29 18:28:22.049922',7.79,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2ac9-753c-8008-9ed3c829a01f','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7ab0-88a9-edea103f23e8','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:28:42.049922','2026-11-29 18:28:56.659922',14.61,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2af6-73e6-9a15-8a83d686af6d','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7777-bd36-4a7ab3b3e859','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:29:16.659922','2026-11-29 18:30:01.659922',45.0,0,0,'timeout','["missed"]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2b35-7439-ade5-11c85948a61c','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-78fa-afb2-d9d2977976c3','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:30:21.659922','2026-11-29 18:30:30.689922',9.03,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2b5d-751b-8b90-6f1bf7dd91e6','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7e6e-9eea-2a756300e3ec','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:30:50.689922','2026-11-29 18:31:03.089922',12.4,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2b74-7372-bb37-9a8b89004891','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7e51-8b54-f24c5f847e03','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:31:23.089922','2026-11-29 18:31:40.649922',17.56,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2b99-7de4-9ea5-e7afe47f156e','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-77ee-90e3-bd44b6ff2137','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:32:00.649922','2026-11-29 18:32:10.909922',10.26,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2bc3-78ae-a014-a12ad67c333e','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7a16-9c60-1a137e2716df','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:32:30.909922','2026-11-29 18:33:15.909922',45.0,0,0,'timeout','["dropped"]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2bf2-737e-b6a0-eccae6e4b1ae','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7e01-9626-93bdcddce07f','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:33:35.909922','2026-11-29 18:33:53.419922',17.51,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2c0b-7bb5-88a1-ab7b87743e32','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-77a8-b0fc-8ef4ebfd2f27','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:34:13.419922','2026-11-29 18:34:30.679922',17.26,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2c3f-72fc-b878-09b848166a1f','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7e65-afc7-932ebf19d540','01a22903-29fd-7e20-8c2c-81da86661237',1,'completed','2026-11-29 18:34:50.679922','2026-11-29 18:35:35.679922',45.0,1,0,'timeout','["missed"]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2c87-7efe-b695-12aedf3fc733','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-70c6-a7ac-27639e2ce847','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'invalid','2026-11-29 19:05:55.679922','2026-11-29 19:06:02.539922',6.86,-1,0,'robot_fault','[]',NULL,'simulated robot fault','[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2cee-7481-a8f1-0b4368c7e015','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-77ad-b98b-60461975a378','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:06:22.539922','2026-11-29 19:07:07.539922',45.0,0,0,'timeout','["dropped"]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2d0a-79d3-8e58-83a600d62fc5','01a22903-280c-753d-b024-1156cb745b73','01a22903-2cb5-7e87-85e4-f7a057236052','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:07:27.539922','2026-11-29 19:08:12.539922',45.0,0,0,'timeout','["missed"]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2d3e-7465-83ab-cd71510e9e89','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7a9e-aa89-a94f188ca1b7','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:08:32.539922','2026-11-29 19:08:44.319922',11.78,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2d73-737e-ab0c-9e39b04c38ce','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-75ab-a57d-2a617a88eda9','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:09:04.319922','2026-11-29 19:09:15.089922',10.77,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2dbc-731c-bba3-735c807f77b0','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-704b-8ea3-13ac8685f226','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:09:35.089922','2026-11-29 19:10:20.089922',45.0,-1,0,'timeout','["missed"]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2e12-7d4a-9529-2efd9fe4737d','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7a8c-b41e-17cb7900c68e','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:10:40.089922','2026-11-29 19:10:53.409922',13.32,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2e62-7177-a02a-a59b94d2ed24','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-700c-b657-673d98777e22','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:11:13.409922','2026-11-29 19:11:29.039922',15.63,2,1,'success','[]',NULL,NULL,'[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2ea0-7611-bb73-bbbdfe1a7a5e','01a22903-280c-753d-b024-1156cb745b73','01a22903-284d-7f4d-8d50-d052635f525b','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'invalid','2026-11-29 19:11:49.039922','2026-11-29 19:11:58.759922',9.72,-1,0,'robot_fault','[]',NULL,'simulated robot fault','[]','{}',1);
INSERT INTO "trial" VALUES('01a22903-2ee5-7c95-b1e0-3a238deaa97d','01a22903-280c-753d-b024-1156cb745b73','01a22903-2ea2-7c84-84fa-9d17f4ca1f85','01a22903-2c70-76b2-ac0e-acd5411e1c9a',1,'completed','2026-11-29 19:12:18.759922','2026-11-29 19:12:28.989922',10.23,2,1,'success','[]',NULL,NULL,'[]','{}',1);
CREATE INDEX ix_event_study_ts ON event (study_id, ts);
CREATE INDEX ix_slot_study_seq ON schedule_slot (study_id, seq);
CREATE INDEX ix_trial_study ON trial (study_id);
CREATE UNIQUE INDEX ix_event_idempotency ON event (study_id, idempotency_key);
COMMIT;
